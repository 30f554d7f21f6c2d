"""What a row shows of an event under a policy for exports, and whether a row that was shown so was altered since.

readable      `body` without secrets; `payload` as it is, so rows verify and replay
everything    also `payload` is left empty (an event's is never) where something was taken out, or where nobody can
              tell: of a type that is not known
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from tracklog.infra.settings import Settings
from tracklog.schemas.loose_json import json_values
from tracklog.schemas.plain import PlainEvent
from tracklog.schemas.redacting import redacted_map
from tracklog.schemas.redaction import MARK, Redaction

__all__ = ["ExportPolicy", "Shown", "policy_of", "same_but_for_marks"]


class Shown(NamedTuple):
    body: Mapping[str, Any] | None
    payload: bytes


class ExportPolicy:
    """`everything`: nothing that holds a secret leaves at all."""

    def __init__(self, redaction: Redaction, *, everything: bool) -> None:
        self._redaction = redaction
        self.everything = everything

    def shown(self, event: PlainEvent) -> Shown:
        body = None if event.body is None else redacted_map(event.body, self._redaction)
        if not self.everything or (body is not None and body == event.body and self._ext_is_clean(event)):
            return Shown(body, event.payload)
        return Shown(body, b"")

    def _ext_is_clean(self, event: PlainEvent) -> bool:
        return all(self._redaction.text(said) == said for said in event.envelope["ext"].values())


def policy_of(settings: Settings) -> ExportPolicy | None:
    """None where rows are exported as they were recorded."""
    redaction = settings.redaction.before_export()
    return None if redaction is None else ExportPolicy(redaction, everything=settings.redaction.export == "everything")


def same_but_for_marks(shown: str, exported: str) -> bool:
    """Whether a body, as JSON, is another one with secrets taken out: equal but where there is a mark."""
    if MARK.search(shown) is None:
        return shown == exported
    return _same(orjson.loads(shown), orjson.loads(exported))


def _same(shown: Any, exported: Any) -> bool:
    if isinstance(shown, str):
        return _same_text(shown, exported)
    if isinstance(shown, dict):
        return (
            isinstance(exported, dict)
            and len(shown) == len(exported)
            and all(_same_text(a, b) and _same(shown[a], exported[b]) for a, b in zip(shown, exported, strict=True))
        )
    if isinstance(shown, list):
        alike = isinstance(exported, list) and len(shown) == len(exported)
        return alike and all(_same(a, b) for a, b in zip(shown, exported, strict=True))
    return bool(shown == exported)


def _same_text(shown: str, exported: Any) -> bool:
    """A field's mark stands for anything; in a text each stands for some of it."""
    if shown == exported or MARK.fullmatch(shown):
        return True
    if not isinstance(exported, str) or MARK.search(shown) is None:
        return False
    held, was = json_values(shown), json_values(exported)
    if held is not None and was is not None:
        return _same(held, was)
    at = 0
    parts = MARK.split(shown)
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        found = exported.rfind(part, at) if last else exported.find(part, at)
        if found < at + (number > 0) or (number == 0 and found != 0):
            return False
        at = found + len(part)
    return at == len(exported)
