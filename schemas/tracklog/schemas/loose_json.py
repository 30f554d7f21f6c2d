"""What a text says that is JSON, or that was: cut anywhere, or several values one after another. Pure.

A text that was cut at a limit says what it says up to there: what was begun is ended, and nothing is left out.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

__all__ = ["dumped", "json_values", "looks_like_json", "without_note"]

_DECODER: Final = json.JSONDecoder(strict=False)
_SPACE: Final = " \t\r\n\ufeff"
_GAP: Final = re.compile(f"[{_SPACE}]*")
_NOTE: Final = re.compile(r"\n\[cut: the whole output has \d+ characters\]\Z")
"""What is written behind a tool's output that was cut."""
_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[{}\[\]:,]|[^\s"{}\[\]:,]+', re.DOTALL)
_ESCAPE_BEGUN: Final = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9A-Fa-f]{0,3})?|\\u[dD][89abAB][0-9A-Fa-f]{2})\Z")
"""An escape without its end, or the first half of a pair without the second."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_CLOSING: Final = {"{": "}", "[": "]"}


def looks_like_json(text: str) -> bool:
    """Whether it begins as an object or a list, or as a string that holds one."""
    begin = text[:200].lstrip(_SPACE)
    return begin[:1] in ("{", "[") or (begin[:1] == '"' and begin[1:].lstrip(_SPACE)[:1] in ("{", "["))


def without_note(text: str) -> tuple[str, str]:
    """A text, and the note behind it that it was cut, which may be empty."""
    found = _NOTE.search(text, max(0, len(text) - 100))
    return (text, "") if found is None else (text[: found.start()], found[0])


def json_values(text: str) -> list[Any] | None:
    """The values one after another that a text consists of, the last perhaps cut; None for any other text, and for one
    that is nested too deep to be read. A note that it was cut is none of them."""
    text, _ = without_note(text)
    if not looks_like_json(text):
        return None
    values: list[Any] = []
    text = text.strip(_SPACE)
    at = 0
    try:
        while at < len(text):
            if not looks_like_json(text[at : at + 200]):
                return None
            try:
                value, end = _DECODER.raw_decode(text, at)
            except json.JSONDecodeError:
                return [*values, _DECODER.decode(_ended(text[at:]))]
            values.append(value)
            found = _GAP.match(text, end)
            at = end if found is None else found.end()
    except (ValueError, RecursionError):
        return None
    return values


def dumped(value: Any) -> str:
    """As JSON that can be written as UTF-8: half a surrogate pair stays the escape that it was."""
    text = json.dumps(value, ensure_ascii=False)
    return text if _SURROGATE.search(text) is None else json.dumps(value)


def _ended(text: str) -> str:
    """A text with what was begun in it ended; whether that is JSON then is for who reads it to find."""
    open_: list[str] = []
    before, last, start = "", "", 0
    is_key = False
    for found in _TOKEN.finditer(text):
        before, last, start = last, found[0], found.start()
        if last in _CLOSING:
            open_.append(last)
        elif last in ("}", "]"):
            if not open_ or _CLOSING[open_.pop()] != last:
                return text
        elif last[0] == '"':
            is_key = bool(open_) and open_[-1] == "{" and before in ("{", ",")
    return text[:start] + _last(last, is_key=is_key) + "".join(_CLOSING[one] for one in reversed(open_))


def _last(token: str, *, is_key: bool) -> str:
    """The last token of a text, ended."""
    if token == ",":
        return ""
    if token == ":":
        return ":null"
    if token[:1] == '"':
        whole = len(token) > 1 and token[-1] == '"' and (len(token) - len(token[:-1].rstrip("\\"))) % 2 == 1
        if not whole:
            begun = _ESCAPE_BEGUN.search(token)
            token = (token if begun is None else token[: begun.start(1)]) + '"'
        return f"{token}:null" if is_key else token
    if token in _CLOSING or token in ("}", "]"):
        return token
    try:
        json.loads(token)
    except ValueError:
        return json.dumps(token)
    return token
