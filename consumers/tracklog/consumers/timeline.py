"""One trajectory for people: what happened, turn by turn, with verdicts and where each record lies.

Every record is an entry, also those that were not accepted: they are shown with their verdict, outside of the turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from tracklog.consumers.summary import summary
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.infra.log.trimmed import beginning_of
from tracklog.schemas.codec import Event, decode_event
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.fold import fold
from tracklog.schemas.head import Verdict
from tracklog.schemas.state import State

PROGRESS_RECORDS: Final = 1_000
"""Read between two reports of progress."""


class Entry(NamedTuple):
    """One record. `verdict` is empty for bytes that are no event; `reason` then says why."""

    record: Record
    event: Event | None
    verdict: str
    fault: bool
    reason: str

    @property
    def accepted(self) -> bool:
        return self.verdict == Verdict.ACCEPTED.value

    @property
    def text(self) -> str:
        return self.reason if self.event is None else summary(self.event)


class Timeline(NamedTuple):
    state: State
    entries: list[Entry]


def timeline(trajectory_id: str, records: Iterable[Record]) -> Timeline:
    """Folds the records of one trajectory, all of them from its first."""
    state, entries = State(trajectory_id), []
    for record in records:
        try:
            event = decode_event(record.key, record.value, record.headers)
        except ForeignRecord as error:
            entries.append(Entry(record, None, "", False, error.message))
            continue
        state, judgement = fold(state, event)
        entries.append(Entry(record, event, judgement.verdict.value, judgement.fault, ""))
    return Timeline(state, entries)


def records_of(
    log: Log, topic: str, trajectory_id: str, on_progress: Callable[[int], None] = lambda records: None
) -> Iterator[Record]:
    """All records under a key, to the present end: a scan of its partition, for Kafka cannot read one key."""
    key = trajectory_id.encode()
    partition = partition_of(key, log.partition_count(topic))
    bounds = log.bounds(topic, partition)
    start = beginning_of(log, topic, partition, [key], bounds.first)
    for number, record in enumerate(read_range(log, topic, partition, start, bounds.end, bounds=bounds), start=1):
        if number % PROGRESS_RECORDS == 0:
            on_progress(PROGRESS_RECORDS)
        if record.key == key:
            yield record
