"""One batch of a view. An event that the processor cannot take in stops its trajectory, and nothing else.

A batch is folded quickly first; what is wrong with a state or its writes shows at its end. Then it is folded once
more with care, where everything is checked after each event, so that the one to blame is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from tracklog.infra.log.port import Record
from tracklog.processors.decoding import step_of
from tracklog.processors.parked import Parked, in_words, parked_writes
from tracklog.processors.partial import partial_writes
from tracklog.processors.place import FIELD, Place, Step
from tracklog.processors.processor import Processor, Seen
from tracklog.processors.shapes import check_write
from tracklog.processors.writes import Rank, Remove, SetFields, Unrank, Unset, Write
from tracklog.schemas.errors import InvalidProcessor, StoreError

if TYPE_CHECKING:
    from tracklog.processors.view import View

S = TypeVar("S")

EXPIRY: Final = "expiry"
STATE: Final = b"state"
UNTIL: Final = b"until"
TRY_AGAIN_S: Final = (0.05, 0.2)
"""Pauses after which an event is given again to a processor that raised, before its trajectory is parked."""
PAUSED_MAX: Final = 10
"""Trajectories parked in one batch after which the rest of it is not paused for: it is no moment's trouble."""


class Held(NamedTuple, Generic[S]):
    """A state as the store holds it. `until_ms`: when it is to leave."""

    state: S
    until_ms: int | None


class Loaded(NamedTuple, Generic[S]):
    """What the store holds of the trajectories of a batch. `states` only where they are kept by trajectory."""

    places: dict[str, Place]
    states: Mapping[str, Held[S] | None]


@dataclass(slots=True)
class _Change(Generic[S]):
    """One state in a batch. `held` is what the store holds: None for nothing."""

    held: Held[S] | None
    after: S


class ViewFolding(Generic[S]):
    """See `Folding`."""

    def __init__(
        self,
        view: View[S],
        partition: int,
        records: Sequence[Record],
        start: int,
        parked: Mapping[str, Parked],
        loaded: Loaded[S],
        *,
        careful: bool,
    ) -> None:
        self._view = view
        self._processor = view.processor
        self._reads = view.processor.reads
        self._partition = partition
        self._records = records
        self._start = start
        self._parked_before, self._parked = parked, dict(parked)
        self._places, self._states = dict(loaded.places), loaded.states
        self._loaded = loaded.places
        kind = type(view.processor)
        self._by_trajectory = kind.key is Processor.key
        self._emits = kind.emit is not Processor.emit
        self._leaves = kind.until_ms is not Processor.until_ms
        self._log_ms = view.log_ms(partition) if self._leaves else -1
        self._times = dict(self._timed()) if self._leaves else {}
        self._careful = careful
        self._changes: dict[str, _Change[S]] = {}
        self._gone: set[str] = set()
        self._ordered: list[Write] = []
        """What events emitted, and what states that left took along, in the order of the log."""
        self._tried: Sequence[str] = ()
        self._partial: dict[str, int] = {}

    def _timed(self) -> Iterator[tuple[int, int]]:
        """The time of the log at each record of the batch, by offset."""
        for record in self._records:
            if record.offset >= self._start:
                self._log_ms = max(self._log_ms, record.timestamp_ms)
                yield record.offset, self._log_ms

    def try_again(self, asked: Sequence[str]) -> None:
        """Reads the log again from where the first of them stopped, for those that were asked for."""
        self._tried = asked
        waiting = {name: self._parked.pop(name) for name in asked if name in self._parked}
        if not waiting:
            return
        keys = {name.encode() for name in waiting}
        first = min(one.offset for one in waiting.values())
        for record in self._view.reread(self._partition, first, self._start):
            if record.key in keys:
                self._take_record(record)
        for name, was in waiting.items():
            if name in self._parked:
                self._parked[name] = self._parked[name]._replace(rounds=was.rounds + 1)

    def see(self, step: Step) -> None:
        if step.offset >= self._start:
            self._take(step)

    def _take(self, step: Step) -> None:
        """Called for every record by every view of a process: each look-up here counts."""
        trajectory_id = step.trajectory_id
        if trajectory_id in self._parked:
            return
        place = self._places[trajectory_id]
        after = step.after if place is step.before else step.at(place)
        if after is None:
            if step.is_behind_beginning(place):
                self._partial.setdefault(trajectory_id, step.offset)
            return
        if step.seen is not None and (self._reads is None or step.name in self._reads):
            try:
                self._apply(trajectory_id, step.seen)
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a processor raises is its own
                if not self._applied_after_all(trajectory_id, step.seen, error):
                    return
        self._places[trajectory_id] = after

    def commit(self, position: int) -> Callable[[], None]:
        try:
            self._forget_due()
            kept = {key: self._held_after(key, change.after) for key, change in self._changes.items()}
            writes = list(self._writes(kept))
        except StoreError:
            raise
        except Exception:
            if self._careful:
                raise
            return self._again_with_care(position)
        for key in self._gone:
            self._view.drop_state(self._partition, key)
        log_ms = self._log_ms if self._leaves else None
        return self._view.commit(self._partition, position, writes, kept, self._moved(), self._parked, log_ms)

    def _again_with_care(self, position: int) -> Callable[[], None]:
        again = self._view.open(self._partition, self._records, careful=True)
        for record in self._records:
            if record.offset >= self._start:
                again._take_record(record)
        return again.commit(position)

    def _take_record(self, record: Record) -> None:
        """One read again by the view: what is not ours was put away by the bundle."""
        step = step_of(record, self._view.partitions, None)
        if isinstance(step, Step):
            self._take(step)

    def _applied_after_all(self, trajectory_id: str, seen: Seen, error: Exception) -> bool:
        """Tries an event again that a processor raised on: it may be short of memory for a moment, or wrong for good.
        Then its trajectory is parked: one event never ends the others."""
        for delay_s in TRY_AGAIN_S if len(self._parked) - len(self._parked_before) < PAUSED_MAX else ():
            self._view.pause(delay_s)
            try:
                self._apply(trajectory_id, seen)
            except StoreError:
                raise
            except Exception as again:  # noqa: BLE001 - see above
                error = again
            else:
                return True
        self._park(seen, error)
        return False

    def _apply(self, trajectory_id: str, seen: Seen) -> None:
        processor = self._processor
        key = trajectory_id if self._by_trajectory else processor.key(seen)
        if key is None:
            return
        change = self._changes.get(key)
        if change is None or self._leaves:
            now_ms = self._times.get(seen.record.offset, seen.record.timestamp_ms)
            change = self._change(key, change, now_ms)
        after = processor.apply(change.after, seen)
        if type(after) is not type(change.after):
            raise InvalidProcessor(
                f"apply of {processor.name} gave a {type(after).__name__} where the state was a"
                f" {type(change.after).__name__}"
            )
        emitted = [self._checked(write) for write in processor.emit(key, after, seen)] if self._emits else ()
        if self._careful:
            self._all_of(key, _Change(change.held, after))
        change.after = after
        self._changes[key] = change
        self._ordered += emitted

    def _change(self, key: str, change: _Change[S] | None, now_ms: int) -> _Change[S]:
        """The state as it is when an event is appended: one whose time is over by then has left before."""
        if change is None:
            held = self._stored(key)
            if held is None:
                return _Change(None, self._processor.start(key))
            change = _Change(held, held.state)
            until_ms = held.until_ms
        else:
            until_ms = self._processor.until_ms(key, change.after)
        if until_ms is None or until_ms > now_ms:
            return change
        self._leave(key, change)
        return _Change(None, self._processor.start(key))

    def _stored(self, key: str) -> Held[S] | None:
        if key in self._gone:
            return None
        return self._states[key] if key in self._states else self._view.held(self._partition, key)

    def _forget_due(self) -> None:
        """Lets go of the states to whose time the log has come."""
        if not self._leaves:
            return
        now_ms = self._log_ms
        for key, change in list(self._changes.items()):
            until_ms = self._processor.until_ms(key, change.after)
            if until_ms is not None and until_ms <= now_ms:
                self._leave(key, change)
        for key in self._view.due(self._partition, now_ms):
            held = None if key in self._changes else self._stored(key)
            if held is not None:
                self._leave(key, _Change(held, held.state))

    def _leave(self, key: str, change: _Change[S]) -> None:
        self._ordered += self._all_of(key, change)
        self._changes.pop(key, None)
        self._gone.add(key)

    def _all_of(self, key: str, change: _Change[S]) -> list[Write]:
        """All that a state would write, and then what takes it away again."""
        after = self._held_after(key, change.after)
        return [*self._writes_of(key, change.held, after), *self._forgetting(key, change.after)]

    def _forgetting(self, key: str, state: S) -> Iterator[Write]:
        for write in self._processor.forget(key, state):
            yield self._checked(write)
        yield Remove([f"s:{key}"])
        yield Unrank([EXPIRY], key)

    def _held_after(self, key: str, state: S) -> Held[S]:
        until_ms = self._processor.until_ms(key, state)
        if until_ms is not None and type(until_ms) is not int:
            raise InvalidProcessor(f"until_ms of {self._processor.name} gave {until_ms!r}: whole milliseconds, or None")
        return Held(state, until_ms)

    def _park(self, seen: Seen, error: Exception) -> None:
        event, trajectory_id = seen.event, seen.event.envelope.trajectory_id
        if len(self._parked) >= self._view.bounds.parked_max:
            already = f", after {len(self._parked)} that are parked" if self._parked else ""
            raise InvalidProcessor(
                f"{self._processor.name} has failed on {event.name} of {trajectory_id}, partition {self._partition},"
                f" offset {seen.record.offset}{already}: {in_words(error)}",
                hint="correct the processor: it goes on where it stopped; processors.parked_max may park more",
            ) from error
        self._parked[trajectory_id] = Parked(seen.record.offset, event.envelope.seq, event.name, in_words(error))

    def _moved(self) -> dict[str, Place]:
        """The places that are not those that were loaded."""
        return {one: place for one, place in self._places.items() if place is not self._loaded[one]}

    def _writes(self, kept: Mapping[str, Held[S]]) -> Iterator[Write]:
        for trajectory_id, place in self._moved().items():
            yield SetFields(f"h:{trajectory_id}", {FIELD.decode(): place.packed()})
        yield from self._ordered
        for key, change in self._changes.items():
            yield from self._writes_of(key, change.held, kept[key])
        yield from parked_writes(self._parked_before, self._parked, self._tried)
        yield from partial_writes(self._partial)

    def _writes_of(self, key: str, before: Held[S] | None, after: Held[S]) -> Iterator[Write]:
        """State and what the processor writes. Whatever could fail in the store fails here."""
        processor = self._processor
        snapshot = processor.snapshot(after.state)
        if type(snapshot) is not bytes or len(snapshot) > self._view.bounds.state_bytes_max:
            raise InvalidProcessor(
                f"the snapshot of {processor.name} for {key!r} must be bytes, {self._view.bounds.state_bytes_max} at"
                f" most; it is a {type(snapshot).__name__} of {len(snapshot)}",
                hint="keep a sum instead of a list, or raise processors.state_bytes_max",
            )
        if after.until_ms is None:
            yield SetFields(f"s:{key}", {STATE.decode(): snapshot})
            if before is not None and before.until_ms is not None:
                yield Unset(f"s:{key}", [UNTIL.decode()])
                yield Unrank([EXPIRY], key)
        else:
            yield SetFields(f"s:{key}", {STATE.decode(): snapshot, UNTIL.decode(): after.until_ms})
            yield Rank([EXPIRY], key, after.until_ms)
        for write in processor.writes(key, None if before is None else before.state, after.state):
            yield self._checked(write)

    def _checked(self, write: Write) -> Write:
        check_write(write, self._processor.layout)
        return write
