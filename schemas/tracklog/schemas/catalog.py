"""Every record type with every version of its schema, read from the files in `avro/` (DESIGN §4).

A file is `avro/<kind>/<Type>.<version>.avsc`. The files are the truth for bytes: a version that was ever
released is never changed, only followed by the next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

import fastavro.schema

from tracklog.schemas.avsc import ENVELOPE_FIELD, NAMESPACE
from tracklog.schemas.control import CONTROL_TYPES
from tracklog.schemas.envelope import Envelope, InboxEnvelope, LedgerEnvelope
from tracklog.schemas.events import EVENT_TYPES
from tracklog.schemas.inbox import INBOX_TYPES
from tracklog.schemas.ledger import LEDGER_TYPES
from tracklog.schemas.values import Value

HEADER_TYPE: Final = "tl-type"
HEADER_SCHEMA: Final = "tl-schema"


class Kind(StrEnum):
    """Which topic a record type belongs to, and with it which envelope it has."""

    EVENTS = "events"
    INBOX = "inbox"
    LEDGER = "ledger"
    CONTROLS = "controls"


ENVELOPES: Final[Mapping[Kind, type[Value]]] = {
    Kind.EVENTS: Envelope,
    Kind.INBOX: InboxEnvelope,
    Kind.LEDGER: LedgerEnvelope,
    Kind.CONTROLS: InboxEnvelope,
}
BODIES: Final[Mapping[Kind, Mapping[str, type[Value]]]] = {
    Kind.EVENTS: EVENT_TYPES,
    Kind.INBOX: INBOX_TYPES,
    Kind.LEDGER: LEDGER_TYPES,
    Kind.CONTROLS: CONTROL_TYPES,
}
KIND_OF: Final[Mapping[str, Kind]] = {name: kind for kind, bodies in BODIES.items() for name in bodies}


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """One version of one record type. `fingerprint` is the little-endian CRC-64-AVRO, 8 bytes."""

    kind: Kind
    name: str
    version: int
    fingerprint: bytes
    text: str
    parsed: Any
    body: Any
    model: type[Value]
    headers: tuple[tuple[str, bytes], ...]


def fingerprint(raw: Mapping[str, Any]) -> bytes:
    """CRC-64-AVRO of the parsing canonical form, as the 8 little-endian bytes of single-object encoding."""
    canonical = fastavro.schema.to_parsing_canonical_form(dict(raw))
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


def load(kind: Kind, name: str, version: int, text: str) -> Schema:
    """Parses one schema file; `body` is the same record without its envelope."""
    raw = json.loads(text)
    body = {**raw, "fields": [f for f in raw["fields"] if f["name"] != ENVELOPE_FIELD]}
    named = {} if len(body["fields"]) == len(raw["fields"]) else _named_types(kind)
    crc = fingerprint(raw)
    parsed_body = fastavro.schema.parse_schema(body, named_schemas=named)
    return Schema(
        kind=kind,
        name=name,
        version=version,
        fingerprint=crc,
        text=text,
        parsed=fastavro.schema.parse_schema(raw),
        body=parsed_body,
        model=BODIES[kind][name],
        headers=((HEADER_TYPE, name.encode()), (HEADER_SCHEMA, crc)),
    )


def _named_types(kind: Kind) -> dict[str, Any]:
    named: dict[str, Any] = {}
    fastavro.schema.parse_schema(envelope_schema(kind), named_schemas=named)
    return named


@cache
def envelope_schema(kind: Kind) -> dict[str, Any]:
    """The frozen envelope of a kind, cut out of the first version of one of its types."""
    name = next(iter(BODIES[kind]))
    raw = json.loads(_folder(kind).joinpath(f"{name}.1.avsc").read_text())
    found = next(f["type"] for f in raw["fields"] if f["name"] == ENVELOPE_FIELD)
    return dict(found)


@cache
def parsed_envelope(kind: Kind) -> Any:
    return fastavro.schema.parse_schema(envelope_schema(kind))


@cache
def versions(name: str) -> tuple[Schema, ...]:
    """All versions of a type, oldest first. Raises KeyError for a name that is no type."""
    kind = KIND_OF[name]
    return tuple(load(kind, name, version, file.read_text()) for version, file in sorted(_files(kind)[name].items()))


@cache
def newest(name: str) -> Schema:
    return versions(name)[-1]


def reader_of(schema: Schema) -> Any:
    """What bytes of this version are read as: the newest version of the type; None for that one itself."""
    last = newest(schema.name)
    return None if last is schema else last.parsed


@cache
def by_fingerprint() -> Mapping[bytes, Schema]:
    """Every known schema version of every type, by fingerprint."""
    return {schema.fingerprint: schema for name in KIND_OF for schema in versions(name)}


@lru_cache(maxsize=1024)
def find(fingerprint: bytes, stated: bytes | None) -> Schema | None:
    """The schema version with this fingerprint, None for one that is not known here.

    `stated` is the type that a record names: where it is right, the files of the other types are not read.
    """
    name = (stated or b"").decode(errors="replace")
    named = versions(name) if name in KIND_OF else ()
    found = next((schema for schema in named if schema.fingerprint == fingerprint), None)
    return found if found is not None else by_fingerprint().get(fingerprint)


@cache
def _files(kind: Kind) -> Mapping[str, Mapping[int, Traversable]]:
    """By type and version."""
    found: dict[str, dict[int, Traversable]] = {}
    for file in _folder(kind).iterdir():
        name, version, _ = file.name.split(".")
        found.setdefault(name, {})[int(version)] = file
    return found


def _folder(kind: Kind) -> Traversable:
    return resources.files("tracklog.schemas") / "avro" / kind.value


def full_name(name: str) -> str:
    return f"{NAMESPACE}.{name}"
