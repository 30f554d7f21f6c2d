"""Redaction of whole records: the last gate before a log, and what an export shows. Pure.

Only what people, models and tools say is looked through: bodies, reasons, labels. Names, ids, hashes and numbers are
what a record is found and followed by.

**What a call is made with is never changed.** A tool would get a word in place of a secret, and a retry something else
than the first try: so an intent, or a person's edit of one, that holds something to be taken out is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.values import Body, Place, ToolCall, Value

__all__ = ["ARGUMENTS_REFUSED", "redacted", "redacted_body", "redacted_map", "redacted_text"]

V = TypeVar("V", bound=Value)

_WORDS: Final = frozenset({"reason", "tried", "asked", "rule"})
"""Fields of plain text in which anybody may say anything."""
_IN_MESSAGE_FORM: Final = frozenset({"reply", "message"})
"""Bodies that, where they are JSON, have a message's form: its own fields are no fields of a policy."""
ARGUMENTS_REFUSED: Final = (
    "its arguments hold what may not be recorded, and what a call is made with is recorded as it is; "
    "let the tool look the secret up by a name"
)


def redacted(record: V, redaction: Redaction) -> V:
    """The body of an event or an inbox record without secrets; the same object when there are none.

    Raises InvalidEvent for the arguments of a call that is to be made.
    """
    changes: dict[str, Any] = {}
    for name in type(record).model_fields:
        was = getattr(record, name)
        now = _field(record, name, was, redaction)
        if now is not was:
            changes[name] = now
    return record.model_copy(update=changes) if changes else record


def redacted_body(body: Body, redaction: Redaction, *, message: bool = False) -> Body:
    """A body without secrets. Of one that is stored, only what was given on can be looked through: whoever stores a
    text takes its secrets out before."""
    text = redacted_text(body.text, body.media_type, redaction, message=message)
    if text == body.text:
        return body
    return body.model_copy(update={"text": text}) if body.stored else Body.of(text, body.media_type)


def redacted_text(text: str, media_type: str, redaction: Redaction, *, message: bool = False) -> str:
    """`message`: a text that is JSON has a message's form, whose own fields are no fields of a policy."""
    is_json = media_type.partition(";")[0].strip().casefold().endswith(("/json", "+json"))
    return redaction.text(text, is_json=is_json, message=message and is_json)


def redacted_map(fields: Mapping[str, Any], redaction: Redaction) -> dict[str, Any]:
    """The same of an event's body as plain values, of whatever version: for reading, so nothing is refused. A text
    stands in `text` of a body, in a field of words, or in the arguments of a proposed call."""
    return {name: _plain(name, value, redaction) for name, value in fields.items()}


def _field(record: Value, name: str, was: Any, redaction: Redaction) -> Any:
    if isinstance(was, Body):
        if name == "arguments" and not _only_recorded(record):
            if redaction.holds(was.text):
                raise InvalidEvent(f"the call cannot be made: {ARGUMENTS_REFUSED}")
            return was
        return redacted_body(was, redaction, message=name in _IN_MESSAGE_FORM)
    if name in _WORDS and isinstance(was, str):
        return _same_or(was, redaction.text(was))
    if name == "labels":
        now = {key: str(value) for key, value in redaction.value(was).items()}
        return was if now == was else now
    if name == "tool_calls":
        calls = tuple(_proposed(call, redaction) for call in was)
        return was if calls == was else calls
    return redacted(was, redaction) if name == "task" and isinstance(was, Value) else was


def _only_recorded(record: Value) -> bool:
    """An intent of a run that was recorded elsewhere is nobody's to run."""
    return getattr(record, "place", None) is Place.RECORDED


def _proposed(call: ToolCall, redaction: Redaction) -> ToolCall:
    text = redaction.text(call.arguments)
    return call if text == call.arguments else call.model_copy(update={"arguments": text})


def _plain(name: str, value: Any, redaction: Redaction) -> Any:
    if isinstance(value, Mapping):
        if name == "labels":
            return redaction.value(value)
        if "text" in value and "size_bytes" in value:
            form = name in _IN_MESSAGE_FORM
            text = redacted_text(value["text"], value.get("media_type", ""), redaction, message=form)
            return {**value, "text": text}
        return redacted_map(value, redaction)
    if isinstance(value, list):
        return [_plain(name, one, redaction) for one in value]
    if isinstance(value, str) and (name in _WORDS or name == "arguments"):
        return redaction.text(value)
    return value


def _same_or(was: str, now: str) -> str:
    return was if was == now else now
