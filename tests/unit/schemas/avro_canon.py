"""CRC-64-AVRO and the parsing canonical form, written from the Avro specification and not from a library."""

from __future__ import annotations

import json
from typing import Any

_EMPTY = 0xC15D213AA4D7A795
_ORDER = ("name", "type", "fields", "symbols", "items", "values", "size")


def _table() -> list[int]:
    out = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (_EMPTY & -(number & 1))
        out.append(number)
    return out


_TABLE = _table()


def crc_64_avro(data: bytes) -> int:
    crc = _EMPTY
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc


def canonical(schema: Any, namespace: str = "") -> str:
    """Parsing canonical form: full names, no docs, no defaults, attributes in the order of the specification."""
    return json.dumps(_stripped(schema, namespace), separators=(",", ":"), ensure_ascii=False)


def _stripped(schema: Any, namespace: str) -> Any:
    if isinstance(schema, list):
        return [_stripped(branch, namespace) for branch in schema]
    if isinstance(schema, str):
        return schema
    kind = schema["type"]
    if kind not in ("record", "enum", "fixed", "array", "map"):
        return _stripped(kind, namespace)
    found = {key: schema[key] for key in _ORDER if key in schema}
    if "name" in schema:
        space = schema.get("namespace", namespace)
        found["name"] = f"{space}.{schema['name']}" if space and "." not in schema["name"] else schema["name"]
        namespace = found["name"].rpartition(".")[0]
    if "fields" in found:
        found["fields"] = [{"name": f["name"], "type": _stripped(f["type"], namespace)} for f in found["fields"]]
    for inner in ("items", "values"):
        if inner in found:
            found[inner] = _stripped(found[inner], namespace)
    return found
