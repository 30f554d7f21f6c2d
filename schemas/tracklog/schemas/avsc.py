"""The Avro schema that a model stands for. The files in `avro/` are written from here once and then frozen.

int -> long            str -> string          bool -> boolean       float -> double
bytes of n bytes -> fixed n                   Word -> enum          Value -> record
tuple[X, ...] -> array                        Mapping[str, X] -> map
X | None -> ["null", X], default null
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tracklog.schemas.values import HASH_BYTES, ID_BYTES, Value, Word

NAMESPACE: Final = "tracklog"
ENVELOPE_FIELD: Final = "envelope"

Avro = str | dict[str, Any] | list[Any]
_SCALARS: Final[Mapping[type, str]] = {int: "long", str: "string", bool: "boolean", float: "double"}
_FIXED: Final[Mapping[int, str]] = {HASH_BYTES: "Hash", ID_BYTES: "Id16"}


def record_schema(name: str, body: type[Value], envelope: type[Value] | None) -> dict[str, Any]:
    """The schema of a record type: the envelope first, then the fields of the body, in order."""
    seen: set[str] = set()
    fields: list[dict[str, Any]] = []
    if envelope is not None:
        fields.append({"name": ENVELOPE_FIELD, "type": _record(envelope, seen)})
    fields += _fields(body, seen)
    doc = (body.__doc__ or "").strip().split("\n")[0]
    return {"type": "record", "name": name, "namespace": NAMESPACE, "doc": doc, "fields": fields}


def _record(model: type[Value], seen: set[str]) -> Avro:
    name = model.__name__
    if name in seen:
        return f"{NAMESPACE}.{name}"
    seen.add(name)
    return {"type": "record", "name": name, "namespace": NAMESPACE, "fields": _fields(model, seen)}


def _fields(model: type[BaseModel], seen: set[str]) -> list[dict[str, Any]]:
    hints = typing.get_type_hints(model, include_extras=True)
    out = []
    for name, info in model.model_fields.items():
        field = {"name": name, "type": _type(hints[name], seen)}
        default = _default(info)
        if default is not PydanticUndefined:
            field["default"] = default
        out.append(field)
    return out


def _default(info: FieldInfo) -> Any:
    value = info.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        return {name: _default(inner) for name, inner in type(value).model_fields.items()}
    if isinstance(value, tuple):
        return list(value)
    return value


def _type(hint: Any, seen: set[str]) -> Avro:
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _annotated(hint, seen)
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        if len(inner) != 1:
            raise TypeError(f"{hint}: a union of more than one type and null is not used in Tracklog's schemas")
        return ["null", _type(inner[0], seen)]
    if origin is tuple:
        return {"type": "array", "items": _type(typing.get_args(hint)[0], seen)}
    if origin is Mapping:
        return {"type": "map", "values": _type(typing.get_args(hint)[1], seen)}
    return _plain(hint, seen)


def _annotated(hint: Any, seen: set[str]) -> Avro:
    base, *extras = typing.get_args(hint)
    if base is not bytes:
        return _type(base, seen)
    size = next(m.max_length for e in extras for m in getattr(e, "metadata", ()) if hasattr(m, "max_length"))
    return _named({"type": "fixed", "name": _FIXED[size], "namespace": NAMESPACE, "size": size}, seen)


def _plain(hint: Any, seen: set[str]) -> Avro:
    if hint in _SCALARS:
        return _SCALARS[hint]
    if issubclass(hint, Word):
        symbols = [word.value for word in hint]
        return _named(
            {
                "type": "enum",
                "name": hint.__name__,
                "namespace": NAMESPACE,
                "symbols": symbols,
                "default": hint.fallback(),
            },
            seen,
        )
    if issubclass(hint, Value):
        return _record(hint, seen)
    raise TypeError(f"{hint} has no Avro type in Tracklog's schemas")


def _named(schema: dict[str, Any], seen: set[str]) -> Avro:
    if schema["name"] in seen:
        return f"{NAMESPACE}.{schema['name']}"
    seen.add(schema["name"])
    return schema
