"""Data that leave nothing of a schema out, and whether fastavro reads them as another schema."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import fastavro

_PLAIN = {
    "null": None,
    "boolean": True,
    "int": 7,
    "long": 7,
    "float": 1.5,
    "double": 1.5,
    "bytes": b"bytes",
    "string": "text",
}


def all_data(schema: Any, names: dict[str, Any] | None = None) -> Iterator[Any]:
    """Data in which, taken together, every branch and every symbol occurs. No type may contain itself."""
    names = {} if names is None else names
    if isinstance(schema, list):
        for branch in schema:
            yield from all_data(branch, names)
        return
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(schema, dict) and "name" in schema:
        names[f"{schema['namespace']}.{schema['name']}" if "namespace" in schema else schema["name"]] = schema
    if kind == "record":
        yield from _records(schema, names)
    elif kind == "enum":
        yield from schema["symbols"]
    elif kind == "fixed":
        yield bytes(schema["size"])
    elif kind == "array":
        yield from ([item] for item in all_data(schema["items"], names))
    elif kind == "map":
        yield from ({"key": value} for value in all_data(schema["values"], names))
    elif kind in _PLAIN:
        yield _PLAIN[kind]
    else:
        yield from all_data(names[kind], names)


def _records(schema: Any, names: dict[str, Any]) -> Iterator[Any]:
    """Not every combination: each value of each field once, beside the first values of the others."""
    values = {field["name"]: list(all_data(field["type"], names)) for field in schema["fields"]}
    first = {name: options[0] for name, options in values.items()}
    yield first
    for name, options in values.items():
        yield from ({**first, name: option} for option in options[1:])


def fastavro_reads(*, writer: Any, reader: Any) -> bool:
    """Whether all of the writer's data come through as the reader."""
    wrote, reads = fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    for datum in all_data(writer):
        out = BytesIO()
        fastavro.schemaless_writer(out, wrote, datum)
        try:
            fastavro.schemaless_reader(BytesIO(out.getvalue()), wrote, reads)
        except (fastavro.read.SchemaResolutionError, ValueError, TypeError, KeyError):
            return False
    return True
