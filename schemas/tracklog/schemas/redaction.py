"""Taking secrets out of texts: known forms of keys and tokens, forms of one's own, and fields by name. Pure.

What is taken out is replaced by a word that says what it was. It is a net with known meshes, not a proof: a secret of
a form that is not known here passes, unless its field is named.

Doing it twice is doing it once: what stands for a secret is never taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from tracklog.schemas.loose_json import dumped, json_values, looks_like_json, without_note

__all__ = ["MARK", "PATTERNS", "Redaction", "check_field", "check_pattern"]

PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "private key": re.compile(
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.{1,20000}?-----END [A-Z ]{0,40}PRIVATE KEY-----", re.DOTALL
    ),
    "AWS key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "API key": re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{20,200}"),
    "GitHub token": re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b|\bgithub_pat_[A-Za-z0-9_]{22,255}\b"),
    "Slack token": re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,200}"),
    "Google key": re.compile(r"\bAIza[0-9A-Za-z_-]{35}\b"),
    "JSON web token": re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    "bearer token": re.compile(r"(?i)\bbearer\s+[A-Za-z0-9._~+/-]{16,}=*"),
    "password": re.compile(r"(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{1,100}:[^\s/@]{1,200}@"),
}
"""What it is -> how it looks. Each has bounds, so that no text makes looking for it slow."""
MARK: Final = re.compile(r"\[[^\[\]\n]{1,80} redacted\]")
_BEGINS_MARKED: Final = re.compile(r'[\s\ufeff"]*' + MARK.pattern)
"""What stands where a secret was."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _-]{0,39}")
UNREADABLE: Final = "unreadable JSON"
"""What stands for a whole text that is JSON by its beginning, names a field of the policy, and cannot be read."""
_ESCAPED: Final = re.compile(r"\\+u([0-9A-Fa-f]{4})")
_GIVEN: Final = ("arguments", "input")
"""In messages of any provider, what a call is given, where that is no text."""


class Redaction:
    """Counts what it took out, by what it was.

    `fields`: names whose values go, whatever they are; case is ignored, and `customer.email` is an email right inside
    of a customer, lists between them passed through. `secrets`: whether the known forms are looked for. `patterns`:
    forms of one's own, by what they are.
    """

    def __init__(
        self,
        fields: Collection[str] = (),
        *,
        secrets: bool = True,
        patterns: Mapping[str, re.Pattern[str]] | None = None,
    ) -> None:
        self._fields = {tuple(name.casefold().split(".")) for name in fields}
        last = "|".join(sorted(re.escape(names[-1]) for names in self._fields))
        self._named = re.compile(rf"""(?i)(?<!\w)(?:{last})\\*["']?\s*[:=]""") if last else None
        self._patterns = {**(PATTERNS if secrets else {}), **(patterns or {})}
        self.counts: dict[str, int] = {}

    def text(self, text: str, *, is_json: bool = False, message: bool = False) -> str:
        """Text without secrets; what is JSON is looked through by its fields, also where it was cut. The very same text
        when it has none. What should be JSON (by its beginning, or as `is_json` says), names a field and cannot be
        read is withheld whole. `message`: where it is JSON, it has a message's form."""
        return self._text(text, (), is_json=is_json, message=message)

    def value(self, value: Any) -> Any:
        """The same of anything that JSON can say."""
        return self._value(value, ())

    def message(self, value: Any) -> Any:
        """The same of a message in any provider's form, whose own fields are no fields of a policy: only what is in its
        texts, and what its calls are given."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                name: self.value(one) if name in _GIVEN and not isinstance(one, str) else self.message(one)
                for name, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.message(one) for one in value]
        return value

    def holds(self, text: str) -> bool:
        """Whether anything would be taken out of it, or was."""
        return MARK.search(text) is not None or self.text(text) != text

    def forms(self, text: str) -> str:
        """The same by forms alone: for texts whose fields are none that anybody filled in."""
        for what, pattern in self._patterns.items():
            text = pattern.sub(self._taking(what), text)
        return text

    def _text(self, text: str, path: tuple[str, ...], *, is_json: bool = False, message: bool = False) -> str:
        held = json_values(text)
        if held is not None:
            try:
                cleaned = [self.message(one) if message else self._value(one, path) for one in held]
            except RecursionError:
                held = None
            else:
                return text if cleaned == held else "\n".join(map(dumped, cleaned)) + without_note(text)[1]
        return self.forms(text) if not self._may_hide(text, is_json) else self._took(UNREADABLE)

    def _may_hide(self, text: str, is_json: bool) -> bool:
        """Whether a text that cannot be read as JSON should be, and may have a field of the policy."""
        if self._named is None or _BEGINS_MARKED.match(text) or not (is_json or looks_like_json(text)):
            return False
        plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
        return self._named.search(plain) is not None

    def _value(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, Mapping):
            return {self.forms(name): self._field(name, one, path) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._value(one, path) for one in value]
        return value

    def _field(self, name: str, value: Any, path: tuple[str, ...]) -> Any:
        path = (*path, name.casefold())
        if value is None or not any(path[start:] in self._fields for start in range(len(path))):
            return self._value(value, path)
        gone = f"[field {name[:60]} redacted]"
        begun = isinstance(value, str) and gone.startswith(value)  # a mark that was cut; an empty value tells nothing
        return value if begun else self._took(f"field {name[:60]}")

    def _taking(self, what: str) -> Callable[[re.Match[str]], str]:
        return lambda _: self._took(what)

    def _took(self, what: str) -> str:
        self.counts[what] = self.counts.get(what, 0) + 1
        return f"[{what} redacted]"


def check_field(name: str) -> str:
    """A field's name, or some from the outside in, with dots. Raises ValueError."""
    if not all(name.split(".")) or len(name) > 200:
        raise ValueError(f"{name!r} is no name of a field: say email, or customer.email")
    return name


def check_pattern(what: str, pattern: str) -> re.Pattern[str]:
    """A form of one's own. Raises ValueError for one that cannot be used."""
    if NAME.fullmatch(what) is None:
        raise ValueError(f"{what!r} cannot say what a pattern finds: 1 to 40 letters, digits, spaces, - and _")
    try:
        made = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"the pattern for {what} is no regular expression: {error}") from None
    marks = [f"[{name} redacted]" for name in (what, *PATTERNS)]
    if made.search("") is not None or any(made.search(mark) is not None for mark in marks):
        raise ValueError(f"the pattern for {what} also finds nothing at all, or what stands for a secret: say more")
    return made
