"""Writes docs/events.md from the record types; `--check` only says whether it is up to date."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from scripts.events_words import FIELDS, TYPES
from scripts.page import write_or_check
from tracklog.schemas import catalog, values
from tracklog.schemas.catalog import BODIES, ENVELOPES, Kind
from tracklog.schemas.envelope import InboxEnvelope
from tracklog.schemas.values import Value, Word

PAGE = Path(__file__).resolve().parent.parent / "docs" / "events.md"
SHARED: tuple[type[Value], ...] = (
    values.Body,
    values.BlobRef,
    values.Ref,
    values.InboxId,
    values.ToolCall,
    values.Usage,
    values.Budgets,
    values.ContextEdit,
)
NUMBERS = ((values.Count, "count"), (values.Micros, "time"), (values.Millis, "milliseconds"))
HEAD = """\
# Events and other records

Written by `scripts/events_doc.py` from `schemas/tracklog/schemas/`; change it there.

Every record is Avro, with one schema for each type, in `schemas/tracklog/schemas/avro/`. The first field is the
envelope; it never changes, so it can be read from a record of any type, also one that is not known yet. The
key of a record is its trajectory id. Headers: `tl-type` (type), `tl-schema` (fingerprint of the schema, 8 bytes),
`tl-hash` (SHA-256 of fingerprint and payload).

How to read the tables: **text** is at most 1,024 characters unless it says *long*; **count** is a whole number from
0 to 2^63 - 1; **time** is microseconds since 1970-01-01 UTC; **hash** is SHA-256, 32 bytes. A field with a default
need not be given. Words in `code` are closed sets; the first one is the one that does the least.
What may follow what is on the page [lifecycles](lifecycle.md).
"""
SECTIONS: Mapping[Kind, tuple[str, str]] = {
    Kind.EVENTS: (
        "Events",
        "The facts of a trajectory, in the topic `<prefix>.events`. Only the owner of the trajectory writes them.",
    ),
    Kind.INBOX: (
        "Inbox records",
        "How everyone else reaches a trajectory, in the topic `<prefix>.inbox`. The owner turns them into events.",
    ),
    Kind.LEDGER: (
        "Ledger records",
        "Who tries a dispatched call, in the topic `<prefix>.attempts`.",
    ),
    Kind.CONTROLS: (
        "Control records",
        "What operators say to all dispatchers, in the topic `<prefix>.controls`. Their key is `tools`.",
    ),
}


def page() -> str:
    """The whole page as text."""
    parts = [HEAD]
    for kind, (title, about) in SECTIONS.items():
        parts.append(f"## {title}\n\n{about}\n")
        for model in (ENVELOPES[kind], *BODIES[kind].values()):
            if kind is not Kind.CONTROLS or model is not InboxEnvelope:  # it is told of under the inbox
                parts += _type(model)
    parts.append("## Values that records share\n")
    for model in SHARED:
        parts += _type(model)
    return "\n".join(parts).rstrip() + "\n"


def _type(model: type[Value]) -> Iterator[str]:
    name = model.__name__
    yield f"### `{name}`\n"
    versions = len(catalog.versions(name)) if name in catalog.KIND_OF else 1
    yield TYPES[name] + (f" Version {versions}." if versions > 1 else "") + "\n"
    yield "| field | type | default | meaning |\n| --- | --- | --- | --- |"
    hints = typing.get_type_hints(model, include_extras=True)
    for field, info in model.model_fields.items():
        default = _default(info.get_default(call_default_factory=True, validated_data={}))
        yield f"| `{field}` | {_kind(hints[field])} | {default} | {meaning(name, field)} |"
    yield ""


def meaning(type_name: str, field: str) -> str:
    """What a field means. Raises KeyError for one that nobody has explained yet."""
    return FIELDS.get(f"{type_name}.{field}") or FIELDS[field]


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return ""
    if isinstance(value, Value):
        return "nothing set"
    if value is None or value == "" or value == () or value == {}:
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _kind(hint: Any) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _constrained(hint, args[0])
    if origin in (typing.Union, types.UnionType):
        return _kind(next(arg for arg in args if arg is not type(None)))
    if origin is tuple:
        return f"list of {_kind(args[0])}"
    if origin is Mapping:
        return "names and texts"
    if isinstance(hint, type) and issubclass(hint, Word):
        return ", ".join(f"`{word.value}`" for word in hint)
    if isinstance(hint, type) and issubclass(hint, Value):
        return f"[{hint.__name__}](#{hint.__name__.lower()})" if hint in SHARED else f"as in `{hint.__name__}`"
    return {str: "text, *long*", bool: "true or false", int: "whole number"}[hint]


def _constrained(hint: Any, base: Any) -> str:
    if hint in (values.Hash, values.Id16):
        return "hash" if hint == values.Hash else "16 bytes"
    if hint == values.TrajectoryId:
        return "text, 1 to 256 bytes"
    if base is int:
        return next((word for number, word in NUMBERS if hint == number), "whole number")
    return "text" if base is str else _kind(base)


if __name__ == "__main__":
    raise SystemExit(write_or_check(PAGE, page()))
