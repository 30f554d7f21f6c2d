"""Records into rows of the cold tables, a batch of one partition at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
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

__all__ = ["Batch", "batches_of", "body_text", "date_of", "may_name_blobs", "table_of"]

BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of a batch, payloads and JSON: a body of many small parts is twenty times as large in JSON."""
DAY_MS: Final = 24 * 3600 * 1000
_EPOCH: Final = date(1970, 1, 1)
_DAYS_MAX: Final = (date.max - _EPOCH).days
_STORED: Final = b'"stored":true'
_MEDIA_TYPE: Final = b'"media_type":"'
_HELD: Final = b'"stored":false'
"""A body has the last two, or the first and names a blob. A media type without them is a reference's. What is text has
no such quotes inside; whoever names a label so is decoded in vain."""
_DRIFT: Final = "DriftCrossed"


class Batch(NamedTuple):
    """Rows of one partition, ordered by offset. `naming`: the records whose events may name blobs."""

    rows: pa.Table
    foreign: pa.Table
    naming: list[Record]
    size_bytes: int
    first_ms: int
    last_ms: int
    end: int
    """Where its last record ends."""


def batches_of(
    records: Sequence[Record], begin: int, log: Identity, models: Models, policy: ExportPolicy | None = None
) -> Iterator[Batch]:
    """Of records in order, none twice; `begin` is where the record before them ends. `policy` says what rows show.
    None is larger than it must be."""
    at = 0
    while at < len(records):
        batch, at = _batch(records, at, begin, log, models, policy)
        begin = batch.end
        yield batch


def _batch(
    records: Sequence[Record], first: int, begin: int, log: Identity, models: Models, policy: ExportPolicy | None
) -> tuple[Batch, int]:
    """From the record of this number on; with the number of the one behind it."""
    events: list[tuple[Any, ...]] = []
    foreign: list[tuple[Any, ...]] = []
    naming: list[Record] = []
    seen: list[Seen] = []
    size_bytes, held_bytes, day, number = 0, 0, _Days(), first
    while number < len(records) and held_bytes < BATCH_BYTES_MAX:
        record = records[number]
        number += 1
        skipped, begin = record.offset - begin, record.offset + 1
        try:
            event = plain_event(record.key, record.value, record.headers)
        except ForeignRecord as error:
            row = _foreign_row(record, skipped, error.message, day.of(record.timestamp_ms), policy)
            foreign.append(row)
            held_bytes += len(record.value or b"")
            continue
        envelope, body = event.envelope, event.body
        shown, payload = (body, event.payload) if policy is None else policy.shown(event)
        text = None if shown is None else body_text(shown)
        if may_name_blobs(event, text):
            naming.append(record)
        inbox = envelope["inbox_id"]
        size_bytes += len(event.payload)
        held_bytes += len(event.payload) + len(text or b"")
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
    times = [record.timestamp_ms for record in records[first:number]]
    rows, aside = _table(events, EVENTS, log, models.column(seen)), _table(foreign, UNDECODABLE, log)
    return Batch(rows, aside, naming, size_bytes, min(times), max(times), begin), number


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
    return event.name == _DRIFT or _STORED in text or text.count(_MEDIA_TYPE) != text.count(_HELD)


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
