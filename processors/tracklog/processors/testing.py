"""For people who write processors: a driver without broker or Redis, and the checks every processor must stand.

driver = Driver(Failures())
driver.feed(run_of("run-1", tools=["pay"]))
assert driver.state("run-1") == 0

check_conformance(Failures)      # raises Nonconforming that says what does not hold
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from tracklog.infra.clock import SeededEntropy
from tracklog.infra.log.port import Record
from tracklog.processors.bundle import Bundle
from tracklog.processors.loading import checked
from tracklog.processors.memory_store import Content, MemoryStore
from tracklog.processors.parked import Parked
from tracklog.processors.partial import PARTIAL
from tracklog.processors.place import Place, Step
from tracklog.processors.processor import Processor, Seen
from tracklog.processors.sample_runs import Chain, Made, interleaved, run_of
from tracklog.processors.store_keys import StoreKeys
from tracklog.processors.view import View, ViewBounds
from tracklog.processors.view_folding import STATE
from tracklog.schemas.codec import decode_event
from tracklog.schemas.values import Ending

__all__ = ["Chain", "Driver", "Nonconforming", "check_conformance", "interleaved", "run_of", "sample_runs"]

S = TypeVar("S")

APPENDED_MS: Final = 1_700_000_000_000
"""Append time of a driver's first record; each one after it is a millisecond later."""
TOPIC: Final = "events"
CACHED: Final = 2
"""States the driver holds in memory: so few that they are read back all the time, as they will be."""


class Driver(Generic[S]):
    """One processor, one partition, one store in memory. Time is what it is told: `advance`."""

    def __init__(
        self, processor: Processor[S], *, batch_records: int = 3, appended_ms: Mapping[bytes, int] | None = None
    ) -> None:
        """`appended_ms`: append times of records by their hash, for those that are not to be given the next one."""
        self.processor = processor
        self.store = MemoryStore(StoreKeys("test", processor.name, processor.version))
        self.log: list[Record] = []
        self._batch_records = batch_records
        self._appended_ms = appended_ms if appended_ms is not None else {}
        self._now_ms = APPENDED_MS
        self.restart()

    def restart(self) -> None:
        """Another process takes over: nothing is left but what is stored."""
        self._view: View[S] = View(
            self.processor,
            self.store,
            partitions=1,
            bounds=ViewBounds(cached_max=CACHED),
            reread=lambda _partition, start, end: iter(self.log[start:end]),
            pause=lambda _seconds: None,
        )
        self._bundle = Bundle([self._view], partitions=1)
        self._position = self._bundle.restore(0)

    def append(self, *given: Chain | Made) -> list[Record]:
        """Puts records into the log without folding them."""
        new: list[Record] = []
        for one in given:
            for made in one.records if isinstance(one, Chain) else (one,):
                offset = len(self.log)
                at_ms = self._appended_ms.get(made.hash, self._now_ms)
                new.append(Record(TOPIC, 0, offset, at_ms, made.key, made.value, made.headers))
                self.log.append(new[-1])
                self._now_ms += 1
        return new

    def feed(self, *given: Chain | Made) -> None:
        """Appends, and folds what is new."""
        self.append(*given)
        self.fold()

    def fold(self) -> None:
        """Folds what is new, in batches."""
        while self._position < len(self.log):
            end = min(self._position + self._batch_records, len(self.log))
            self.fold_batch(self.log[self._position : end], end)

    def fold_batch(self, records: Sequence[Record], position: int) -> None:
        """One batch, whatever is in it."""
        self._bundle.fold(0, records, position)()
        self._position = max(self._position, position)

    def drop_batch(self, records: Sequence[Record]) -> None:
        """A batch that was folded, and whose process ended before it was stored."""
        folding = self._view.begin(0, records)
        for record in records:
            folding.see(_step(record))

    def advance(self, seconds: float) -> None:
        """Later records are appended later."""
        self._now_ms += round(seconds * 1000)

    def state(self, key: str) -> S | None:
        """The state as it is stored; None for none."""
        fields = self.store.get(0, f"s:{key}")
        return None if fields is None else self.processor.restore(key, fields[STATE])

    def get(self, key: str) -> Any:
        """What is stored under a key of the layout; None for nothing."""
        return self.store.get(0, key)

    def content(self) -> dict[str, Content]:
        """Everything that is stored."""
        return dict(self.store.content(0))

    def parked(self) -> dict[str, Parked]:
        """The trajectories whose events the processor could not take in."""
        return dict(self._view.parked(0))

    def retry(self, trajectory_id: str) -> None:
        """What `tracklog projections retry` asks for; done at the next batch."""
        self.store.ask_retry(0, trajectory_id)
        self._bundle.fold(0, [], self._position)()


class Nonconforming(AssertionError):
    """A processor does not do what its runner relies on."""


def sample_runs() -> list[Chain]:
    """Small runs that differ in tenant, tools, model and ending; one is still running."""
    return [
        run_of("run-a", turns=2, tenant="north", tools=("search", "pay")),
        run_of("run-b", turns=1, tenant="south", tools=("search",), model="other-model", ending=Ending.FAILED),
        run_of("run-c", turns=3, tenant="north", tools=("pay", "book"), labels={"kind": "order"}, ending=None),
    ]


def check_conformance(kind: type[Processor[Any]], runs: Iterable[Chain] | None = None, *, seed: int = 0) -> int:
    """Returns in how many ways the runs were folded to the same. Raises Nonconforming with what does not hold,
    InvalidProcessor for a class that cannot be loaded.

    `runs` should have events that the processor acts on; the sample runs have most types. What is checked: `apply` is
    pure and repeatable, a snapshot is restored to the same state, and the store comes to the same content however the
    log is cut into batches, whatever comes twice or out of order, and wherever the process is stopped.
    """
    chains = list(runs) if runs is not None else sample_runs()
    made = interleaved(chains)
    records = _Records(checked(f"{kind.__module__}:{kind.__qualname__}", kind), made)
    records.check_pure()
    expected = records.folded(lambda driver: driver.fold(), batch_records=len(made))
    chance = _Chance(seed)
    ways: Sequence[tuple[str, Callable[[Driver[Any]], None]]] = (
        ("one event at a time", _one_by_one),
        ("in batches of any size", lambda driver: _cut(driver, chance)),
        ("with every batch given twice", _twice),
        ("by a process that is stopped after every batch", _stopped),
        ("by a process that is stopped in the middle of every batch", _interrupted),
        ("after the store was wiped half way", _wiped),
    )
    for what, fold in ways:
        records.expect(what, expected, fold)
    appended_ms = {one.hash: APPENDED_MS + n for n, one in enumerate(made)}
    disturbed = _Records(records.processor, list(_disturbed(made, chance)), appended_ms)
    disturbed.expect("with events that come twice and too early", expected, lambda driver: driver.fold(), offsets=False)
    return len(ways) + 2


class _Records:
    """Records and the processor they are for."""

    def __init__(
        self, processor: Processor[Any], made: Sequence[Made], appended_ms: Mapping[bytes, int] | None = None
    ) -> None:
        self.processor = processor
        self._made = made
        self._appended_ms = appended_ms

    def check_pure(self) -> None:
        driver = Driver(self.processor)
        places: dict[str, Place] = {}
        states: dict[str, Any] = {}
        for record in driver.append(*self._made):
            step = _step(record)
            place = step.at(places.get(step.trajectory_id, Place()))
            if place is None or step.seen is None:
                continue
            places[step.trajectory_id] = place
            reads, seen = self.processor.reads, step.seen
            key = self.processor.key(seen) if reads is None or step.name in reads else None
            if key is not None:
                states[key] = self._applied(key, states.get(key, self.processor.start(key)), seen)
        if not states:
            raise Nonconforming(f"{self.processor.name} took none of the events: give `runs` that have some it reads")

    def _applied(self, key: str, state: Any, seen: Seen) -> Any:
        processor, name = self.processor, seen.event.name
        before = processor.snapshot(state)
        after = processor.apply(state, seen)
        if processor.snapshot(state) != before:
            raise Nonconforming(f"apply of {processor.name} changes the state it is given, at {name}: give a new one")
        snapshot = processor.snapshot(after)
        if processor.snapshot(processor.apply(state, seen)) != snapshot:
            raise Nonconforming(f"apply of {processor.name} gives two states for the same {name}: it is not pure")
        restored = processor.restore(key, snapshot)
        if type(restored) is not type(after) or restored != after:
            raise Nonconforming(
                f"{processor.name} restores {restored!r} from the snapshot of {after!r}: define snapshot and restore"
            )
        return after

    def folded(self, fold: Callable[[Driver[Any]], None], *, batch_records: int = 4) -> dict[str, Content]:
        driver: Driver[Any] = Driver(self.processor, batch_records=batch_records, appended_ms=self._appended_ms)
        driver.append(*self._made)
        fold(driver)
        if driver.parked():
            trajectory_id, parked = next(iter(driver.parked().items()))
            raise Nonconforming(f"{self.processor.name} fails on {parked.event} of {trajectory_id}: {parked.error}")
        return driver.content()

    def expect(
        self, what: str, expected: dict[str, Content], fold: Callable[[Driver[Any]], None], *, offsets: bool = True
    ) -> None:
        found = self.folded(fold)
        for key in sorted(expected.keys() | found.keys()):
            if key == PARTIAL:
                continue  # of an event that came too early it is not known that its beginning will come
            if not offsets and key.startswith(_streams(self.processor)):
                continue  # the ids of its entries are offsets
            if expected.get(key) != found.get(key):
                raise Nonconforming(
                    f"{self.processor.name}, folded {what}, has {found.get(key)!r} under {key!r}, and"
                    f" {expected.get(key)!r} when it is folded in one go"
                )


def _step(record: Record) -> Step:
    return Step(Seen(decode_event(record.key, record.value, record.headers), record), record.offset)


class _Chance:
    """Numbers that one seed always gives again."""

    def __init__(self, seed: int) -> None:
        self._entropy = SeededEntropy(seed)

    def below(self, limit: int) -> int:
        return int.from_bytes(self._entropy.nonce()) % limit


def _streams(processor: Processor[Any]) -> tuple[str, ...]:
    return tuple(name for name, shape in processor.layout.items() if shape.value == "stream")


def _one_by_one(driver: Driver[Any]) -> None:
    for batch in _batches(driver, 1):
        driver.fold_batch(batch, batch[-1].offset + 1)


def _cut(driver: Driver[Any], chance: _Chance) -> None:
    at = 0
    while at < len(driver.log):
        end = min(len(driver.log), at + 1 + chance.below(9))
        driver.fold_batch(driver.log[at:end], end)
        at = end


def _batches(driver: Driver[Any], records_max: int) -> Iterator[list[Record]]:
    for at in range(0, len(driver.log), records_max):
        yield driver.log[at : at + records_max]


def _twice(driver: Driver[Any]) -> None:
    for batch in _batches(driver, 5):
        driver.fold_batch(batch, batch[-1].offset + 1)
        driver.fold_batch(batch, batch[-1].offset + 1)


def _stopped(driver: Driver[Any]) -> None:
    for batch in _batches(driver, 4):
        driver.restart()
        driver.fold_batch(batch, batch[-1].offset + 1)


def _interrupted(driver: Driver[Any]) -> None:
    """Each batch is folded and dropped before it is stored, then folded by another process."""
    for batch in _batches(driver, 4):
        driver.drop_batch(batch)
        driver.restart()
        driver.fold_batch(batch, batch[-1].offset + 1)


def _wiped(driver: Driver[Any]) -> None:
    half = len(driver.log) // 2
    driver.fold_batch(driver.log[:half], half)
    driver.store.wipe()
    driver.restart()
    driver.fold_batch(driver.log, len(driver.log))


def _disturbed(made: Sequence[Made], chance: _Chance) -> Iterable[Made]:
    """Everything in its order, with copies of what came before and of what is still to come in between: neither is
    accepted, but for the one that comes first."""
    for n, one in enumerate(made):
        later = [other for other in made[n + 2 :] if other.key == one.key]
        if len(later) > 1:
            yield later[-1]
        yield one
        yield made[chance.below(n + 1)]
