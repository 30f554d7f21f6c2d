"""Reading ranges of the log again: no group, no commits, nothing written (DESIGN §12)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tracklog.consumers.event_json import event_map, foreign_map, without_none
from tracklog.consumers.where import Where
from tracklog.infra.clock import Clock
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log, Reader, Record
from tracklog.infra.log.ranges import read_range, resolve_range
from tracklog.infra.log.trimmed import begun_late, check_beginning, pass_trimmed
from tracklog.schemas.codec import Event, decode_event
from tracklog.schemas.errors import ForeignRecord, OffsetTrimmed, RangeError
from tracklog.schemas.fold import fold
from tracklog.schemas.state import State

BEGINNING: Final = "beginning"
END: Final = "end"
FOLLOW_POLL_S: Final = 0.5
FOLLOW_RECORDS: Final = 500


class Range(NamedTuple):
    """Offsets `start` to `end` (exclusive) of one partition, and what of the asked range is not in the log."""

    partition: int
    start: int
    end: int
    clipped: str

    @property
    def empty(self) -> bool:
        return self.start >= self.end


class Replayed(NamedTuple):
    """One record of a range. `event` is None for bytes that are no event; `reason` says why."""

    record: Record
    event: Event | None
    reason: str = ""

    def as_map(self) -> dict[str, object]:
        return foreign_map(self.record, self.reason) if self.event is None else event_map(self.event, self.record)


def resolve(
    log: Log,
    topic: str,
    *,
    partition: int | None = None,
    trajectory_id: str | None = None,
    frm: str | None = None,
    to: str | None = None,
) -> list[Range]:
    """The ranges asked for, against the present ends. Without anything: all partitions, all that is kept.

    A trajectory lies in one partition, so it needs none. Raises RangeError for a partition that is not there, and
    for an offset without a partition: offsets of different partitions have nothing to do with each other.
    """
    count = log.partition_count(topic)
    if partition is not None and not 0 <= partition < count:
        raise RangeError(f"{topic} has no partition {partition}", hint=f"it has partitions 0 to {count - 1}")
    if partition is None and trajectory_id is not None:
        partition = partition_of(trajectory_id.encode(), count)
    if partition is None and count > 1:
        for bound in (frm, to):
            if bound is not None and bound.isdigit():
                raise RangeError(
                    f"offset {bound} is a place in one partition, and {topic} has {count}",
                    hint="give --partition or --trajectory, or a time, -N, beginning or end",
                )
    chosen = range(count) if partition is None else [partition]
    start, end = BEGINNING if frm is None else frm, END if to is None else to
    return [_resolved(log, topic, one, start, end) for one in chosen]


def _resolved(log: Log, topic: str, partition: int, frm: str, to: str) -> Range:
    found = resolve_range(log, topic, partition, frm, to)
    kept = log.bounds(topic, partition)
    missing = []
    if found.clipped_start and (kept.first > 0 or not frm.startswith("-")):
        missing.append(f"from {frm}")
    if found.clipped_end:
        missing.append(f"to {to}")
    text = ""
    if missing:
        text = (
            f"partition {partition}: asked for {' '.join(missing)}, kept are offsets {kept.first} to {kept.end}"
            f" (end exclusive); read are {found.start} to {found.end}"
        )
    return Range(partition, found.start, found.end, text)


def begun_under(log: Log, topic: str, ranges: Sequence[Range], frm: str | None) -> dict[int, int]:
    """Of ranges asked for from `frm` on, those that reach to where the log was trimmed: their first kept offsets."""
    late = begun_late(log, topic, [one.partition for one in ranges])
    starts = {one.partition: one.start for one in ranges}
    return {partition: first for partition, first in late.items() if _reaches(frm, starts[partition], first)}


def _reaches(frm: str | None, start: int, first: int) -> bool:
    if frm is not None and frm.isdigit():
        return int(frm) < first
    return start <= first and frm != END and (frm is None or not frm.startswith("-"))


class Filter(NamedTuple):
    """What of a range is wanted. Bytes that are no event pass, unless something about events is asked."""

    trajectory_id: str | None = None
    where: Where | None = None

    def passes(self, one: Replayed) -> bool:
        if self.trajectory_id is not None and one.record.key != self.trajectory_id.encode():
            return False
        if self.where is None:
            return True
        return one.event is not None and self.where.matches(without_none(one.as_map()))


def replay(log: Log, topic: str, ranges: Sequence[Range], wanted: Filter) -> Iterator[Replayed]:
    """The wanted records, partition by partition, in offset order. Holes are passed in silence."""
    for one in ranges:
        for record in read_range(log, topic, one.partition, one.start, one.end):
            replayed = _decoded(record)
            if wanted.passes(replayed):
                yield replayed


def in_one_order(replayed: Iterable[Replayed], members: Collection[str]) -> list[Replayed]:
    """Of these trajectories, whatever the verdict, in the one order of a swarm (`swarm.order`): across partitions an
    event comes after its causes. What is no event is left out."""
    keys = {one.encode() for one in members}
    found = [(one.event.envelope, one) for one in replayed if one.event is not None and one.record.key in keys]
    found.sort(key=lambda one: (one[0].lamport, one[0].trajectory_id, one[0].seq, one[1].record.offset))
    return [one for _, one in found]


def follow(
    log: Log, topic: str, ranges: Sequence[Range], wanted: Filter, *, clock: Clock, for_s: float | None
) -> Iterator[Replayed]:
    """What is appended from the ends of the ranges on, as it comes; for ever, or for `for_s` seconds."""
    reader = log.reader(topic, {one.partition: one.end for one in ranges}, follows=True)
    deadline = None if for_s is None else clock.monotonic_s() + for_s
    try:
        while deadline is None or clock.monotonic_s() < deadline:
            left = FOLLOW_POLL_S if deadline is None else min(FOLLOW_POLL_S, deadline - clock.monotonic_s())
            for record in _polled(log, topic, reader, ranges, max(0.0, left)):
                replayed = _decoded(record)
                if wanted.passes(replayed):
                    yield replayed
    finally:
        reader.close()


def _polled(log: Log, topic: str, reader: Reader, ranges: Sequence[Range], wait_s: float) -> list[Record]:
    try:
        return reader.poll(FOLLOW_RECORDS, wait_s)
    except OffsetTrimmed:
        if not pass_trimmed(log, topic, reader, [one.partition for one in ranges]):
            raise
        return []


def states_at_end(log: Log, topic: str, ranges: Sequence[Range], wanted: Filter) -> Iterator[State]:
    """The state at the end of the range of every trajectory that has a wanted record inside it.

    A state is folded from the beginning of what is kept: twice as much is read, and memory holds the states of
    one partition's chosen trajectories. Raises TrajectoryTrimmed for a single one whose beginning may be trimmed.
    """
    for one in ranges:
        chosen = {
            replayed.event.envelope.trajectory_id
            for replayed in replay(log, topic, [one], wanted)
            if replayed.event is not None
        }
        states = {trajectory_id: State(trajectory_id) for trajectory_id in sorted(chosen)}
        first = log.bounds(topic, one.partition).first
        for record in read_range(log, topic, one.partition, first, one.end) if states else ():
            event = _decoded(record).event
            if event is not None and event.envelope.trajectory_id in states:
                state, _ = fold(states[event.envelope.trajectory_id], event)
                states[event.envelope.trajectory_id] = state
        if wanted.trajectory_id is not None and not all(state.events for state in states.values()):
            check_beginning(log, topic, wanted.trajectory_id)
        yield from states.values()


def _decoded(record: Record) -> Replayed:
    try:
        return Replayed(record, decode_event(record.key, record.value, record.headers))
    except ForeignRecord as error:
        return Replayed(record, None, error.message)
