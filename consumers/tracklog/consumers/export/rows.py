"""Records into rows of the cold tables, a batch of one partition at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa

from tracklog.consumers.export.models import Models, Seen, served_by
from tracklog.consumers.export.redacting import ExportPolicy
from tracklog.infra.cold.columns import EVENTS, UNDECODABLE, row_check
from tracklog.infra.cold.table import Identity
from tracklog.infra.log.port import Record
from tracklog.producers.asked import EXT_TOOLS
from tracklog.producers.fork_start import EXT_REPLY
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.plain import PlainEvent, plain_event

__all__ = ["Batch", "batch_of", "body_text", "date_of", "may_name_blobs", "table_of"]

DAY_MS: Final = 24 * 3600 * 1000
_EPOCH: Final = date(1970, 1, 1)
_DAYS_MAX: Final = (date.max - _EPOCH).days
_NAMES_BLOB = re.compile(rb'"stored":true|"media_type":"(?:[^"\\]|\\.)*"[,}](?!"stored")')
"""A body that is stored, or a reference that is no body: what may name a blob. The rest is told by decoding it."""
_DRIFT: Final = "DriftCrossed"


class Batch(NamedTuple):
    """Rows of one partition, ordered by offset. `naming`: the records whose events may name blobs."""

    rows: pa.Table
    foreign: pa.Table
    naming: list[Record]
    size_bytes: int
    first_ms: int
    last_ms: int


def batch_of(
    records: Sequence[Record], begin: int, log: Identity, models: Models, policy: ExportPolicy | None = None
) -> Batch:
    """Of records in order, none twice; `begin` is where the record before them ends. `policy` says what rows show."""
    events: list[tuple[Any, ...]] = []
    foreign: list[tuple[Any, ...]] = []
    naming: list[Record] = []
    seen: list[Seen] = []
    size_bytes, day = 0, _Days()
    for record in records:
        skipped, begin = record.offset - begin, record.offset + 1
        try:
            event = plain_event(record.key, record.value, record.headers)
        except ForeignRecord as error:
            row = _foreign_row(record, skipped, error.message, day.of(record.timestamp_ms), policy)
            foreign.append(row)
            continue
        envelope, body = event.envelope, event.body
        shown, payload = (body, event.payload) if policy is None else policy.shown(event)
        text = None if shown is None else body_text(shown)
        if may_name_blobs(event, text):
            naming.append(record)
        inbox = envelope["inbox_id"]
        size_bytes += len(event.payload)
        events.append(
            (
                record.partition,
                record.offset,
                skipped,
                record.timestamp_ms,
                envelope["trajectory_id"],
                envelope["seq"],
                envelope["epoch"],
                envelope["turn"],
                envelope["lamport"],
                event.name,
                event.version,
                envelope["recorded_at"],
                None if inbox is None else inbox["source"],
                None if inbox is None else inbox["seq"],
                text,
                event.fingerprint,
                row_check(event.hash, record.partition, record.offset, record.timestamp_ms),
                event.stated_hash,
                payload,
                envelope["tenant"],
                day.of(record.timestamp_ms),
            )
        )
        seen.append(Seen(envelope["trajectory_id"], envelope["seq"], served_by(event.name, body)))
    times = [record.timestamp_ms for record in records]
    rows = _table(events, EVENTS, log, models.column(seen))
    return Batch(rows, _table(foreign, UNDECODABLE, log), naming, size_bytes, min(times), max(times))


def body_text(body: Mapping[str, Any]) -> bytes:
    """The body as JSON: bytes in hex."""
    return orjson.dumps(body, default=bytes.hex)


def date_of(append_ms: int) -> date:
    """The day of an append, UTC; the nearest that there is for a time that is none."""
    return _Days().of(append_ms)


def may_name_blobs(event: PlainEvent, text: bytes | None) -> bool:
    """False when the event surely names none: told from its JSON, which costs less than decoding it with checks."""
    if text is None:
        return False
    ext = event.envelope["ext"]
    if ext and (EXT_TOOLS in ext or EXT_REPLY in ext):
        return True
    return event.name == _DRIFT or _NAMES_BLOB.search(text) is not None


def table_of(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows by the names of columns."""
    return pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)


def _foreign_row(record: Record, skipped: int, reason: str, day: date, policy: ExportPolicy | None) -> tuple[Any, ...]:
    """Of bytes of which nobody can tell what they say, nothing leaves where everything is looked through."""
    value = None if policy is not None and policy.everything else record.value
    headers = [[name, value.hex()] for name, value in record.headers]
    place = (record.partition, record.offset, skipped, record.timestamp_ms)
    return (*place, reason, record.key, value, json.dumps(headers), day)


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema, log: Identity, *last: Sequence[str]) -> pa.Table:
    """The first two columns are the log's, the same in each row; `last` are columns that were made apart."""
    same = [pa.repeat(pa.scalar(value, pa.string()), len(rows)) for value in log[:2]]
    columns = list(zip(*rows, strict=True)) if rows else [()] * (len(schema) - 2 - len(last))
    made = [_column(values, field) for values, field in zip([*columns, *last], list(schema)[2:], strict=True)]
    return pa.Table.from_arrays([*same, *made], schema=schema)


def _column(values: Sequence[Any], field: pa.Field) -> pa.Array:
    if field.name == "body":  # made of bytes that are UTF-8: orjson wrote them
        return pa.array(values, pa.binary()).view(pa.string())
    return pa.array(values, field.type)


class _Days:
    """The date of a time, made once a day: UTC, and the nearest that there is for a time that is none."""

    def __init__(self) -> None:
        self._day, self._date = -1, _EPOCH

    def of(self, timestamp_ms: int) -> date:
        day = timestamp_ms // DAY_MS
        if day != self._day:
            self._day, self._date = day, _EPOCH + timedelta(days=min(max(day, 0), _DAYS_MAX))
        return self._date
