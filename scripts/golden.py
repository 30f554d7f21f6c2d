"""Keeps bytes of every version of every record type in tests/golden; adds what is missing, changes nothing.

Each file holds two records, one with no more than it must have (bare) and one with every field (full): the
bytes as they lie in the log, and what they must be read as. They are decoded by the tests for ever.
`fingerprints.json` holds the fingerprint and the SHA-256 of every schema file ever released.
"""

from __future__ import annotations

import hashlib
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

from tracklog.schemas import catalog
from tracklog.schemas.catalog import ENVELOPES, KIND_OF, Kind, Schema
from tracklog.schemas.codec import Encoded, encode_event, encode_record
from tracklog.schemas.envelope import Envelope
from tracklog.schemas.stamp import Stamp, trajectory_prefix
from tracklog.schemas.values import Body, Value, Word

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "golden" / "data"
FINGERPRINTS = FOLDER / "fingerprints.json"

BENT: Mapping[str, Mapping[str, Any]] = {
    "ContextEdit": {"op": "add", "count": 0, "seqs": (3, 4)},
    **{key: {"choice": "edit", "answer": None, "arguments": Body.of("{}")} for key in ("ApprovalResolved", "Decision")},
    **{key: {"target": "call", "turn": None, "call_id": "call-1"} for key in ("Annotated", "Annotation")},
    "Compacted": {"first_turn": 1, "last_turn": 2},
    "TimerSet": {"due_turn": 5, "due_at": None},
}
"""Fields that depend on each other, by class."""
BENT_BARE: Mapping[str, Mapping[str, Any]] = {
    "ToolIntent": {"place": "recorded"},
    **{key: {"choice": "approve", "answer": None, "arguments": None} for key in ("ApprovalResolved", "Decision")},
    **{key: {"target": "trajectory", "turn": None, "call_id": None} for key in ("Annotated", "Annotation")},
}


def sample(model: type[Value], *, full: bool) -> Any:
    """A legal value that depends on nothing but the class: with every field, or with the required ones only."""
    if model is Body:
        return Body.of("what was said\n")
    hints = typing.get_type_hints(model, include_extras=True)
    fields = {
        name: _value(hints[name], name, full=full)
        for name, info in model.model_fields.items()
        if full or info.is_required()
    }
    bent = {**BENT.get(model.__name__, {}), **({} if full else BENT_BARE.get(model.__name__, {}))}
    return model(**{**fields, **bent})


def _value(hint: Any, name: str, *, full: bool) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        if args[0] is bytes:
            size = next(c.max_length for extra in args[1:] for c in extra.metadata if hasattr(c, "max_length"))
            return hashlib.sha256(name.encode()).digest()[:size]
        return _value(args[0], name, full=full)
    if origin in (typing.Union, types.UnionType):
        return _value(next(a for a in args if a is not type(None)), name, full=full)
    if origin is tuple:
        return (_value(args[0], name, full=full),)
    if origin is Mapping:
        return {"key": _value(args[1], name, full=full)}
    return _plain(hint, name, full=full)


def _plain(hint: Any, name: str, *, full: bool) -> Any:
    if hint is str:
        return f"{name} é"
    if hint is int:
        return crc32(name.encode())
    if hint is bool:
        return full
    if issubclass(hint, Word):
        return list(hint)[-1]
    return sample(hint, full=full)


def encoded(schema: Schema, *, full: bool) -> tuple[Any, Encoded]:
    """(envelope, record) of the newest version of a type."""
    envelope = sample(ENVELOPES[schema.kind], full=full)
    body = sample(schema.model, full=full)
    if schema.kind is not Kind.EVENTS:
        return envelope, encode_record(envelope, body)
    return envelope, encode_event(_stamp(envelope), body)


def _stamp(envelope: Envelope) -> Stamp:
    same = {name: getattr(envelope, name) for name in Stamp._fields if name != "prefix"}
    return Stamp(prefix=trajectory_prefix(envelope.trajectory_id, envelope.tenant), **same)


def plain(value: Any) -> Any:
    """A record's content as JSON; bytes as hex."""
    if isinstance(value, Value):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def golden(schema: Schema) -> dict[str, Any]:
    """The content of one golden file."""
    out: dict[str, Any] = {}
    for case in ("bare", "full"):
        envelope, record = encoded(schema, full=case == "full")
        out[case] = {
            "key": envelope.trajectory_id,
            "value": record.value.hex(),
            "headers": {name: data.hex() for name, data in record.headers},
            "hash": record.hash.hex(),
            "body": plain(sample(schema.model, full=case == "full")),
        }
    return out


def fingerprints() -> dict[str, dict[str, str]]:
    """Fingerprint and SHA-256 of the text of every schema file in the package."""
    return {
        f"{schema.name}.{schema.version}": {
            "fingerprint": schema.fingerprint.hex(),
            "sha256": hashlib.sha256(schema.text.encode()).hexdigest(),
        }
        for name in KIND_OF
        for schema in catalog.versions(name)
    }


def add_missing() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in KIND_OF:
        schema = catalog.newest(name)
        file = FOLDER / f"{schema.name}.{schema.version}.json"
        if not file.exists():
            file.write_text(json.dumps(golden(schema), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"wrote {file.name}")
    kept = json.loads(FINGERPRINTS.read_text()) if FINGERPRINTS.exists() else {}
    FINGERPRINTS.write_text(json.dumps({**fingerprints(), **kept}, indent=1) + "\n")


if __name__ == "__main__":
    add_missing()
