"""One batch of a projection: states move with their records, and ended ones leave in the order of the log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from tracklog.infra.log.port import Record
from tracklog.processors.leaving import ENDED, LEAVE_MAX, Crowd, Ended, Leaving, ended_keys
from tracklog.processors.partial import partial_writes
from tracklog.processors.place import FIELD, Place, Step
from tracklog.processors.processor import Seen
from tracklog.processors.writes import Rank, SetFields, Unrank, Write

if TYPE_CHECKING:
    from tracklog.processors.projection import Projection

S = TypeVar("S")


@dataclass(slots=True)
class Change(Generic[S]):
    """One trajectory in a batch. `before` is what the store holds: None for nothing."""

    before: S | None
    after: S
    records: list[Record] = field(default_factory=list)


class Stored(NamedTuple, Generic[S]):
    """What the store holds of the trajectories of a batch: states, and places of those that have left."""

    states: Mapping[str, S | None]
    places: dict[str, Place]


class Gone(NamedTuple):
    """What a batch says of trajectories that have left. `moved`: those whose place it stores; `crowds`: by tenant;
    `log_ms`: the time of the log at its end; `oldest_ms`: no ended one that stays has an earlier last append."""

    moved: Collection[str]
    crowds: Mapping[str, Crowd]
    log_ms: int
    oldest_ms: int


class ProjectionFolding(Generic[S]):
    """See `Folding`."""

    def __init__(self, of: Projection[S], partition: int, start: int, records: int, stored: Stored[S]) -> None:
        self._of = of
        self._processor = of.processor
        self._reads, self._apply = of.processor.reads, of.processor.apply
        self._leaving = of.processor.leaving
        self._partition = partition
        self._start = start
        self._records = records
        self._stored, self._left = stored
        self._changes: dict[str, Change[S]] = {}
        self._partial: dict[str, int] = {}
        self._log_ms = of.log_ms(partition) if self._leaving is not None else -1
        self._oldest_ms: int | None = None
        """The earliest last append of those that have ended or moved in this batch."""
        self._crowds: dict[str, Crowd] = {}
        self._out: dict[str, list[str]] = {}
        """By tenant, those that left because of their age before its crowd was asked for: the store counts them."""
        self._moved: set[str] = set()
        """Those that have left whose place is to be stored."""
        self._forgotten: dict[str, S] = {}
        """Those that leave, as the store holds them."""
        self._others: dict[str, None] = {}
        """Those that leave and of which the batch has no record: their states are loaded when it is stored."""

    def see(self, step: Step) -> None:
        seen = step.seen
        if step.offset < self._start or seen is None or (self._reads is not None and step.name not in self._reads):
            return
        if self._leaving is None:
            self._fold(step.trajectory_id, seen)
        else:
            self._log_ms = max(self._log_ms, seen.record.timestamp_ms)
            self._see_leaving(self._leaving, step, seen)

    def _fold(self, trajectory_id: str, seen: Seen) -> Change[S]:
        change = self._changes.get(trajectory_id)
        if change is None:
            before = self._stored[trajectory_id]
            if before is None and seen.event.envelope.seq > 0:
                self._partial[trajectory_id] = seen.record.offset
            state = before if before is not None else self._processor.start(trajectory_id)
            change = self._changes[trajectory_id] = Change(before, state)
        change.after = self._apply(change.after, seen)
        change.records.append(seen.record)
        return change

    def _see_leaving(self, leaving: Leaving[S], step: Step, seen: Seen) -> None:
        """One record where ended trajectories leave: perhaps of one that has left, or has to before it."""
        trajectory_id = step.trajectory_id
        if trajectory_id not in self._left:
            change = self._changes.get(trajectory_id)
            held = self._stored[trajectory_id] if change is None else change.after
            was = None if held is None else leaving.ended(held)
            if was is None or not leaving.is_due(was, self._log_ms):
                now = leaving.ended(self._fold(trajectory_id, seen).after)
                if now is not None:
                    self._has_ended(leaving, trajectory_id, now, new=was is None)
                return
            self._go(leaving, trajectory_id)
            self._count_out(leaving, was.tenant, trajectory_id)
        after = step.at(self._left[trajectory_id])
        if after is not None:
            self._left[trajectory_id] = after
            self._moved.add(trajectory_id)

    def _has_ended(self, leaving: Leaving[S], trajectory_id: str, one: Ended, *, new: bool) -> None:
        self._oldest_ms = one.last_ms if self._oldest_ms is None else min(self._oldest_ms, one.last_ms)
        most = leaving.bounds.per_tenant_max
        if most is None:
            return
        crowd = self._crowds.get(one.tenant)
        if crowd is None:
            crowd = self._crowds[one.tenant] = self._of.crowd(self._partition, one.tenant, self._records, most)
            for out in self._out.pop(one.tenant, ()):
                crowd.take(out)
        crowd.put(trajectory_id, one.last_ms, new=new)
        for oldest in crowd.too_many(most):
            self._go(leaving, oldest)

    def _count_out(self, leaving: Leaving[S], tenant: str, trajectory_id: str) -> None:
        """One less has ended, because of its age."""
        if tenant in self._crowds:
            self._crowds[tenant].take(trajectory_id)
        elif leaving.bounds.per_tenant_max is not None:
            self._of.forget_crowd(self._partition, tenant)
            self._out.setdefault(tenant, []).append(trajectory_id)

    def _go(self, leaving: Leaving[S], trajectory_id: str) -> None:
        change = self._changes.pop(trajectory_id, None)
        before = self._stored.get(trajectory_id) if change is None else change.before
        after = before if change is None else change.after
        if after is None:
            self._others[trajectory_id] = None
            return
        self._gone(leaving, trajectory_id, after)
        if before is not None:
            self._forgotten[trajectory_id] = before

    def _gone(self, leaving: Leaving[S], trajectory_id: str, state: S) -> None:
        ended = leaving.ended(state)
        assert ended is not None, f"{trajectory_id} leaves and has not ended"
        self._left[trajectory_id] = ended.place
        self._moved.add(trajectory_id)

    def commit(self, position: int) -> Callable[[], None]:
        """In one step; where more of them have to leave than go into one, in further ones at the same place."""
        if self._leaving is None:
            return self._of.commit(self._partition, position, list(self._writes()), self._changes)
        while True:
            due, next_ms = self._find_due(self._leaving)
            self._load_others(self._leaving, due)
            oldest_ms = next_ms if self._oldest_ms is None else min(next_ms, self._oldest_ms)
            gone = Gone(self._moved, self._crowds, self._log_ms, oldest_ms)
            stored = self._of.commit(self._partition, position, list(self._writes()), self._changes, gone)
            if len(due) < LEAVE_MAX:
                return stored
            stored()
            self._changes, self._forgotten, self._others, self._moved = {}, {}, {}, set()

    def _find_due(self, leaving: Leaving[S]) -> tuple[list[str], int]:
        """Has those leave to whose time the log has come. Gives those that the store names, and the earliest last
        append of the others."""
        age_ms = leaving.bounds.age_ms
        if age_ms is None:
            return [], 0
        for trajectory_id, change in list(self._changes.items()):
            ended = leaving.ended(change.after)
            if ended is not None and leaving.is_due(ended, self._log_ms):
                self._go(leaving, trajectory_id)
                self._count_out(leaving, ended.tenant, trajectory_id)
        return self._of.due(self._partition, self._log_ms - age_ms)

    def _load_others(self, leaving: Leaving[S], due: Iterable[str]) -> None:
        """Those that leave and that are not in the batch."""
        crowded = set(self._others)
        self._others |= {one: None for one in due if one not in self._changes and one not in self._left}
        for trajectory_id, state in self._of.load(self._partition, list(self._others)).items():
            if state is None:
                continue
            self._gone(leaving, trajectory_id, state)
            self._forgotten[trajectory_id] = state
            ended = leaving.ended(state)
            if ended is not None and trajectory_id not in crowded:
                self._count_out(leaving, ended.tenant, trajectory_id)

    def _writes(self) -> Iterator[Write]:
        leaving = self._leaving
        yield from partial_writes(self._partial)
        for trajectory_id, change in self._changes.items():
            yield from self._processor.writes(change.before, change.after, change.records)
            ended = None if leaving is None else leaving.ended(change.after)
            if ended is not None:
                yield Rank(ended_keys(ended.tenant), trajectory_id, ended.last_ms)
        if leaving is None:
            return
        for trajectory_id, state in self._forgotten.items():
            yield from leaving.forget(state)
            ended = leaving.ended(state)
            yield Unrank(ended_keys(ended.tenant) if ended is not None else [ENDED], trajectory_id)
        for trajectory_id in self._others.keys() - self._forgotten.keys():  # a list that names what is not there
            yield Unrank([ENDED], trajectory_id)
        for trajectory_id in sorted(self._moved):
            yield SetFields(place_key(trajectory_id), {FIELD.decode(): self._left[trajectory_id].packed()})


def place_key(trajectory_id: str) -> str:
    """Key of the hash that holds the place of a trajectory that has left."""
    return f"h:{trajectory_id}"
