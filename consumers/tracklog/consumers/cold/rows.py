"""Whether a row of the events table says what its own payload says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tracklog.consumers.export.redacting import same_but_for_marks
from tracklog.consumers.export.rows import body_text, date_of
from tracklog.infra.cold.cold_log import placed_record
from tracklog.infra.cold.columns import row_check
from tracklog.infra.cold.scan import scan
from tracklog.infra.cold.table import ColdTable
from tracklog.infra.log.port import Record
from tracklog.schemas.chain import event_hash
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.plain import PlainEvent, plain_event

__all__ = ["CHECKED", "altered", "altered_rows"]

CHECKED: Final = (
    "partition",
    "offset",
    "skipped",
    "append_ms",
    "trajectory_id",
    "seq",
    "epoch",
    "turn",
    "lamport",
    "event_type",
    "type_version",
    "recorded_at",
    "inbox_source",
    "inbox_seq",
    "body",
    "fingerprint",
    "check",
    "stated_hash",
    "payload",
    "tenant",
    "date",
    "cluster_id",
    "topic_id",
)
"""The columns that a check reads."""


def altered(row: Mapping[str, Any], record: Record) -> Iterator[str]:
    """What is wrong with it, in words; `record` is the row as a record of the log."""
    digest = event_hash(row["fingerprint"], row["payload"])
    if row_check(digest, row["partition"], row["offset"], row["append_ms"]) != row["check"]:
        yield "payload, offset or time of append is not what was exported here: the row's check is another"
        return
    try:
        event = plain_event(record.key, record.value, record.headers)
    except ForeignRecord as error:
        yield f"the payload is no event of this trajectory: {error.message}"
        return
    said = _said(event, row["append_ms"])
    for name, value in said.items():
        if row[name] != value and not (name == "body" and row[name] and same_but_for_marks(row[name], value)):
            yield f"column {name} says {_short(row[name])}, the payload {_short(value)}"


def altered_rows(table: ColdTable, partition: int, first: int, end: int) -> Iterator[tuple[int, str]]:
    """(offset, what is wrong with it) of the rows of a partition in [first, end). Blocks; raises ColdDamaged."""
    topic = table.identity.topic
    for part in scan(table, partition, first, end, CHECKED):
        for row in part.to_pylist():
            yield from ((row["offset"], detail) for detail in altered(row, placed_record(topic, row)))


def _said(event: PlainEvent, append_ms: int) -> dict[str, Any]:
    envelope = event.envelope
    inbox = envelope["inbox_id"]
    text = None if event.body is None else body_text(event.body).decode()
    return {
        **{name: envelope[name] for name in ("trajectory_id", "tenant", "seq", "epoch", "turn", "lamport")},
        "recorded_at": envelope["recorded_at"],
        "event_type": event.name,
        "inbox_source": None if inbox is None else inbox["source"],
        "inbox_seq": None if inbox is None else inbox["seq"],
        "date": date_of(append_ms),
        **({} if text is None else {"body": text}),
    }


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
