"""Taking secrets out of what leaves: known forms of keys and tokens, and fields by name. Pure.

What is taken out is replaced by a word that says what it was. It is a net with known meshes, not a proof: a secret of
a form that is not known here passes, unless its field is named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

__all__ = ["PATTERNS", "Redaction"]

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


class Redaction:
    """Counts what it took out, by what it was. `fields`: names whose values go, whatever they are; case is ignored.
    `secrets`: whether known forms of keys and tokens are looked for."""

    def __init__(self, fields: Collection[str] = (), *, secrets: bool = True) -> None:
        self._fields = {name.casefold() for name in fields}
        self._patterns = PATTERNS if secrets else {}
        self.counts: dict[str, int] = {}

    def text(self, text: str) -> str:
        """Text without secrets; what is JSON inside of it is looked through by its fields."""
        held = _json_in(text) if self._fields else None
        if held is not None:
            return json.dumps(self.value(held), ensure_ascii=False)
        for what, pattern in self._patterns.items():
            text = pattern.sub(self._taking(what), text)
        return text

    def value(self, value: Any) -> Any:
        """The same of anything that JSON can say."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {name: self._field(name, one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        return value

    def _field(self, name: str, value: Any) -> Any:
        if name.casefold() not in self._fields or value is None:
            return self.value(value)
        return self._took(f"field {name}")

    def _taking(self, what: str) -> Callable[[re.Match[str]], str]:
        return lambda _: self._took(what)

    def _took(self, what: str) -> str:
        self.counts[what] = self.counts.get(what, 0) + 1
        return f"[{what} redacted]"


def _json_in(text: str) -> Any:
    """The object or list that a text is, None for any other text."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
