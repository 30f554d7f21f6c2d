"""An event as JSON and back: bytes as hex, bodies as they are, nothing left out.

{"type", "schema", "known", "problem", "hash",                     what the record is
 "trajectory_id", "tenant", "seq", ..., "prev_hash", "ext",        its envelope
 "body": {...} or null,
 "partition", "offset", "timestamp_ms"}                            where it lies, if that was given
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel, ValidationError

from tracklog.infra.log.port import Record
from tracklog.schemas.codec import Recorded
from tracklog.schemas.envelope import Envelope
from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.events import EVENT_TYPES, EventBody

SAMPLE: Final[Mapping[str, Any]] = {
    "type": "",
    "schema": "",
    "known": True,
    "problem": "",
    "flaw": "",
    "hash": "",
    "trajectory_id": "",
    "tenant": "",
    "seq": 0,
    "epoch": 0,
    "turn": 0,
    "event_id": "",
    "causes": [],
    "lamport": 0,
    "recorded_at": 0,
    "inbox_id": {},
    "inbox_position": 0,
    "key_id": "",
    "prev_hash": "",
    "ext": {},
    "body": {},
    "partition": 0,
    "offset": 0,
    "timestamp_ms": 0,
}
"""Every name that an event map has, with a value of its type: what a filter may ask for."""


def event_map(event: Recorded[Any, Any], record: Record | None = None) -> dict[str, Any]:
    """The event, or what is in another topic, as plain values. `record` adds where it lies."""
    fields: dict[str, Any] = {
        "type": event.name,
        "schema": event.fingerprint.hex(),
        "known": event.known,
        "problem": event.problem,
        "flaw": event.flaw,
        "hash": event.hash.hex(),
        **_plain(event.envelope),
        "body": None if event.body is None else _plain(event.body),
    }
    if record is not None:
        fields |= place_map(record)
    return fields


def foreign_map(record: Record, reason: str) -> dict[str, Any]:
    """A record that is no event: its key and bytes as they are, and why they cannot be read."""
    return {
        "type": None,
        "problem": reason,
        "key": None if record.key is None else record.key.hex(),
        "value": None if record.value is None else record.value.hex(),
        **place_map(record),
    }


def place_map(record: Record) -> dict[str, Any]:
    return {"partition": record.partition, "offset": record.offset, "timestamp_ms": record.timestamp_ms}


def without_none(value: Any) -> Any:
    """The same without fields that are None, at any depth: for a filter such a field is not there."""
    if isinstance(value, dict):
        return {name: without_none(item) for name, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, list) else value


def parse_event_map(fields: Mapping[str, Any]) -> tuple[Envelope, EventBody]:
    """The inverse of `event_map` for a type that is known. Raises InvalidEvent that says what does not fit."""
    model = EVENT_TYPES.get(str(fields.get("type")))
    if model is None or fields.get("body") is None:
        raise InvalidEvent(f"{fields.get('type')!r} with a body is no event type known here")
    envelope = {name: fields[name] for name in Envelope.model_fields if name in fields}
    try:
        return _built(Envelope, envelope), _built(model, fields["body"])
    except (ValidationError, ValueError, TypeError, KeyError) as error:
        raise InvalidEvent(f"{model.__name__} does not read: {str(error).splitlines()[0]}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value if isinstance(value, bool) or not isinstance(value, str) else str(value)


def _built(model: type[Any], fields: Mapping[str, Any]) -> Any:
    return model.model_validate(
        {
            name: _typed(model.model_fields[name].annotation, value) if name in model.model_fields else value
            for name, value in fields.items()
        }
    )


def _typed(annotation: Any, value: Any) -> Any:
    """Hex back to bytes wherever the type says bytes."""
    if value is None:
        return None
    if annotation is bytes:
        return bytes.fromhex(value)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _built(annotation, value)
    if isinstance(value, list):
        return tuple(_typed_by_any(annotation, item) for item in value)
    return value if isinstance(value, Mapping) and not _models(annotation) else _typed_by_any(annotation, value)


def _typed_by_any(annotation: Any, value: Any) -> Any:
    """Of a union or a container: the part that is a model or bytes, if there is one."""
    for part in _parts(annotation):
        if part is bytes or part in _models(annotation):
            return _typed(part, value)
    return value


def _parts(annotation: Any) -> list[Any]:
    """The types an annotation is made of, itself included."""
    found = [annotation]
    for part in get_args(annotation):
        found += _parts(part)
    return found


def _models(annotation: Any) -> list[type[BaseModel]]:
    return [part for part in _parts(annotation) if isinstance(part, type) and issubclass(part, BaseModel)]
