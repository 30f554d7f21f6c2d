"""One loop for everything that owns partitions: processors, dispatchers, routers, workers, exporters (DESIGN §6).

It reads one topic, as a member of a group (`run`) or with partitions assigned by hand (`drain`), and hands
batches to its `Owner`, which stores state and position in one step. What the owner has stored is the only start
position there is; the group's commits are a hint for people's tools.

    assigned     restore: the owner says where to go on
    batch        fold: the owner writes state and position, or raises and nothing has happened
    conflict     somebody else moved the stored position (a zombie, a wipe, a rollback): restore, and read again
    outage       store or log away: wait with back-off, keep the place, give up after a bound
    revoked      forget; what was read and not folded is dropped, its next owner reads it
    fatal        ClientFatal leaves the loop: the process ends with its exit code
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Final, Protocol, TypeVar

from tracklog.infra.clock import Clock
from tracklog.infra.lines import about
from tracklog.infra.log.port import GroupListener, GroupMember, Log, Record
from tracklog.infra.log.trimmed import Seeking, pass_trimmed
from tracklog.infra.partition_loop_listener import Listener
from tracklog.infra.partition_loop_owner import BATCH_BYTES_MAX, TOGETHER_RECORDS, Begun, Owner, Stored, batches
from tracklog.infra.partition_loop_progress import Progress
from tracklog.infra.settings_sections import LoopSettings
from tracklog.schemas.errors import (
    AppendUnknown,
    ColdUnavailable,
    LogQueueFull,
    LogUnavailable,
    OffsetTrimmed,
    StoreConflict,
    StoreUnavailable,
    TracklogError,
)

T = TypeVar("T")

OUTAGE_S_MAX: Final = 120.0
"""How long `drain` waits for a store or a log that went away. `run` has a setting: see `loop.outage_timeout_s`."""
RETRY_FIRST_S: Final = 0.1
RETRY_MAX_S: Final = 5.0
HINT_INTERVAL_S: Final = 1.0
IDLE_FOLD_S: Final = 5.0
"""How often an idle partition's stored position is confirmed: finds a wiped store without waiting for a record."""
CONFLICTS_MAX: Final = 20
"""Conflicts in a row on one partition without the stored position moving: then it is no race but a defect."""

OUTAGES: Final = (StoreUnavailable, LogUnavailable, AppendUnknown, LogQueueFull, ColdUnavailable)

Join = Callable[[str, str, GroupListener], GroupMember]
"""Group id, topic and listener to a member of the group."""


class Source(Seeking, Protocol):
    """What a Reader and a GroupMember have in common."""

    def poll(self, max_records: int, timeout_s: float) -> list[Record]: ...


class PartitionLoop:
    """See the module. `positions` are those stored, by owned partition; `trimmed` counts offsets that were no
    longer in the log when they were to be read. Both, and `progress`, may be read by other threads.

    `on_outage` is called by the loop's thread with the error when an outage begins, and with None when it is over.
    `on_trimmed` with a partition and the first offset that it is kept from, when what was to be read is before that.
    An owner that gathers records over several folds sets two more: `on_release` is called while partitions are still
    owned and about to be given back in good order, and `stored` says how far its positions are stored by now.
    """

    def __init__(
        self,
        log: Log,
        topic: str,
        owner: Owner,
        *,
        clock: Clock,
        settings: LoopSettings | None = None,
        outage_s_max: float | None = None,
    ) -> None:
        self._log = log
        self._topic: Final = topic
        self._owner = owner
        self._clock = clock
        self._settings = settings if settings is not None else LoopSettings()
        self._outage_given_s = outage_s_max  # above 0
        self._outage_s_max = OUTAGE_S_MAX
        self.progress = Progress(clock, self._settings.stall_timeout_s)
        self.positions: dict[int, int] = {}
        self.trimmed: dict[int, int] = {}
        self.on_outage: Callable[[TracklogError | None], None] = lambda _: None
        self.on_trimmed: Callable[[int, int], None] = lambda _partition, _first: None
        self.on_release: Callable[[], None] = lambda: None
        self.stored: Callable[[], Mapping[int, int]] = lambda: self.positions
        self._pending: dict[int, list[Record]] = {}
        self._begun: list[Begun] = []
        self._conflicts: dict[int, tuple[int, int]] = {}
        self._stop = threading.Event()
        self._give_up_s: float | None = None
        self._took_s = 0.0  # by the last batch; the next is waited for a quarter of it: why is in DESIGN §6
        self._confirmed_s = self._checked_s = clock.monotonic_s()

    @property
    def topic(self) -> str:
        return self._topic

    def run(self, group_id: str, stop: threading.Event, join: Join | None = None) -> dict[int, int]:
        """Owns what the group gives it, until `stop` is set. Raises ClientFatal and what the owner raises.

        Returns the positions of what it owned at the end, which it has given back. `join`: how it becomes a member,
        where that is not the log's own way.
        """
        self._stop, self._give_up_s, self._begun = stop, None, []
        self._outage_s_max = self._outage_given_s or self._settings.outage_timeout_s
        listener = Listener(self)
        join = join if join is not None else self._log.group
        member = listener.member = join(group_id, self._topic, listener)
        hinted: dict[int, int] = {}
        hinted_s = self._clock.monotonic_s()
        try:
            while not stop.is_set():
                self._step(member, min(self._settings.batch_wait_s, self._took_s / 4))
                if self._clock.monotonic_s() - hinted_s >= HINT_INTERVAL_S and hinted != self.stored():
                    hinted, hinted_s = dict(self.stored()), self._clock.monotonic_s()
                    listener.hint(hinted)
            return dict(self.positions)
        finally:
            member.close()

    def drain(
        self,
        until: Mapping[int, int] | None = None,
        *,
        partitions: Iterable[int] | None = None,
        stop: threading.Event | None = None,
    ) -> dict[int, int]:
        """Reads partitions, assigned by hand, up to the offsets `until` (exclusive), and returns the positions.

        Without `until`, to the ends found now; without `partitions` either, all of the topic. Uses no group and
        commits nothing but what the owner stores. Ends early when `stop` is set. Raises LogUnavailable when the log
        makes no progress.
        """
        self._stop, self._give_up_s, self._begun = stop if stop is not None else threading.Event(), None, []
        self._outage_s_max = self._outage_given_s or OUTAGE_S_MAX
        ends = dict(until) if until is not None else self._ends(partitions)
        try:
            with closing(self._log.reader(self._topic, {p: self.own(p) for p in ends})) as reader:
                self._read_up_to(reader, ends)
                self.on_release()
                return dict(self.positions)
        finally:
            for partition in ends:
                self.disown(partition)

    def _read_up_to(self, reader: Source, ends: Mapping[int, int]) -> None:
        moved_s = self._clock.monotonic_s()
        while not self._stop.is_set() and any(self.positions[p] < end for p, end in ends.items()):
            before = dict(self.positions)
            self._step(reader, 0.0, ends)
            now = self._clock.monotonic_s()
            if self.positions != before:
                moved_s = now
            elif now - moved_s > self._outage_s_max:
                raise LogUnavailable(
                    f"reading {self._topic} came to a stop at {before} of {dict(ends)} (partition: offset)",
                    hint=f"no progress for {self._outage_s_max:g} s: is {self._log.url} well?",
                )

    def _ends(self, partitions: Iterable[int] | None) -> dict[int, int]:
        wanted = range(self._log.partition_count(self._topic)) if partitions is None else list(partitions)
        return self._log.ends(self._topic, wanted)

    def _step(self, source: Source, batch_wait_s: float, ends: Mapping[int, int] | None = None) -> None:
        self._fill(source, batch_wait_s)
        begun_s, idle = self._clock.monotonic_s(), not self._pending
        try:
            for partition in sorted(self._pending):
                self._fold(source, partition, self._pending.pop(partition), ends)
            if idle:
                self._fold_idle(source, ends)
        finally:
            self._settle(source)
        if not idle:
            self._took_s = self._clock.monotonic_s() - begun_s
        self._check(source)

    def _fill(self, source: Source, batch_wait_s: float) -> None:
        """Polls until the batch is full, or its time is over. Ownership may change in here: see `Listener`."""
        left = self._settings.batch_records_max
        size_bytes = 0
        deadline_s: float | None = None
        while left > 0 and size_bytes < BATCH_BYTES_MAX and not self._stop.is_set():
            rest_s = 0.0 if deadline_s is None else deadline_s - self._clock.monotonic_s()
            if deadline_s is not None and rest_s <= 0:
                return
            poll_s = self._settings.poll_timeout_s
            records = self._poll(source, left, poll_s if deadline_s is None else min(rest_s, poll_s))
            self.progress.polled()
            if deadline_s is None:
                if not records:
                    return
                deadline_s = self._clock.monotonic_s() + batch_wait_s
            for record in records:
                self._pending.setdefault(record.partition, []).append(record)
                size_bytes += len(record.value or b"")
            left -= len(records)

    def _poll(self, source: Source, max_records: int, timeout_s: float) -> list[Record]:
        try:
            with self.progress.at_work(f"polling {self._topic}"):
                return self._patiently(lambda: source.poll(max_records, timeout_s))
        except OffsetTrimmed:
            if not (passed := pass_trimmed(self._log, self._topic, source, list(self.positions))):
                raise
            for partition, offsets in passed.items():
                self._count_trimmed(partition, offsets, source.position(partition))
            return []

    def _count_trimmed(self, partition: int, offsets: int, first: int) -> None:
        self.trimmed[partition] = self.trimmed.get(partition, 0) + offsets
        self.on_trimmed(partition, first)

    def _fold(self, source: Source, partition: int, records: list[Record], ends: Mapping[int, int] | None) -> None:
        position = source.position(partition)
        if ends is not None and self.positions[partition] >= ends[partition]:
            return
        if ends is not None and position > ends[partition]:
            position = max(ends[partition], self.positions[partition])
            records = [r for r in records if r.offset < position]
        try:
            for batch, after in batches(records, position):
                if self._has_to_wait(partition) and partition in self._settle(source):
                    return
                self._begin(partition, batch, after)
        except StoreConflict as conflict:
            self._read_again(source, partition, conflict)

    def _fold_idle(self, source: Source, ends: Mapping[int, int] | None) -> None:
        """Stores positions that moved past records nobody is shown, and confirms the others now and then."""
        now = self._clock.monotonic_s()
        confirm = now - self._confirmed_s >= IDLE_FOLD_S
        if confirm:
            self._confirmed_s = now
        for partition in list(self.positions):
            if confirm or source.position(partition) > self.positions[partition]:
                self._fold(source, partition, [], ends)

    def _has_to_wait(self, partition: int) -> bool:
        together = sum(len(one.records) for one in self._begun)
        return together >= TOGETHER_RECORDS or any(one.partition == partition for one in self._begun)

    def _begin(self, partition: int, records: Sequence[Record], position: int) -> None:
        with self._taking_in(partition):
            stored = self._patiently(lambda: self._owner.fold(partition, records, position))
        if stored is None:
            self._moved(partition, position)
        else:
            self._begun.append(Begun(partition, records, position, stored))

    def _settle(self, source: Source) -> set[int]:
        """Waits for all that was begun. Gives the partitions that are read again, from their stored positions."""
        again = set()
        while self._begun:
            one = self._begun.pop(0)
            try:
                with self._taking_in(one.partition):
                    self._store(one)
            except StoreConflict as conflict:
                self._read_again(source, one.partition, conflict)
                again.add(one.partition)
            else:
                self._moved(one.partition, one.position)
        return again

    def _store(self, one: Begun) -> None:
        """After an outage nobody knows what is stored of it: it is begun again."""
        stored: Stored | None = one.stored

        def action() -> None:
            nonlocal stored
            once, stored = stored, None
            once = once or self._owner.fold(one.partition, one.records, one.position)
            if once is not None:
                once()

        self._patiently(action)

    @contextmanager
    def _taking_in(self, partition: int) -> Iterator[None]:
        of = about(topic=self._topic, partition=partition, offset=self.positions[partition])
        with of, self.progress.at_work(f"partition {partition}: taking in its records"):
            yield

    def _moved(self, partition: int, position: int) -> None:
        if position > self.positions[partition]:
            self.positions[partition] = position
            self._conflicts.pop(partition, None)
            self.progress.got_on((partition,))

    def _read_again(self, source: Source, partition: int, conflict: StoreConflict) -> None:
        self._owner.forget(partition)
        start = self._start(partition)
        before, count = self._conflicts.get(partition, (-1, 0))
        count = count + 1 if start == before else 1
        if count > CONFLICTS_MAX:
            raise conflict
        self._conflicts[partition] = (start, count)
        self.positions[partition] = start
        source.seek(partition, start)

    def _start(self, partition: int) -> int:
        with about(topic=self._topic, partition=partition), self.progress.at_work(f"partition {partition}: beginning"):
            position = self._patiently(lambda: self._owner.restore(partition))
        bounds = self._patiently(lambda: self._log.bounds(self._topic, partition))
        if position > bounds.end:
            raise OffsetTrimmed(
                f"{self._topic}, partition {partition}: the store is at offset {position}, the log ends at"
                f" {bounds.end}",
                hint="was the log replaced, or cut? Drop what was made from it, or use another prefix",
            )
        if position < bounds.first:
            self._count_trimmed(partition, bounds.first - position, bounds.first)
        return max(position, bounds.first)

    def own(self, partition: int) -> int:
        """Ownership begins: the offset to go on from."""
        start = self.positions[partition] = self._start(partition)
        self.progress.got_on((partition,))
        return start

    def disown(self, partition: int) -> None:
        """Ownership has ended."""
        self._pending.pop(partition, None)
        self._conflicts.pop(partition, None)
        if self.positions.pop(partition, None) is not None:
            self.progress.gave_up(partition)
            self._owner.forget(partition)

    def _check(self, source: Source) -> None:
        """A partition without anything to read is no stalled one; nor is one of a log that cannot be asked."""
        now = self._clock.monotonic_s()
        if now - self._checked_s < self._settings.stall_timeout_s / 4:
            return
        self._checked_s = now
        try:
            with self.progress.at_work(f"asking {self._log.url} where partitions end"):
                ends = self._ends(list(self.positions))
        except LogUnavailable:
            self.progress.got_on(list(self.positions))
            return
        self.progress.got_on([p for p, end in ends.items() if source.position(p) >= end])

    def _patiently(self, action: Callable[[], T]) -> T:
        """Tries again while store or log are away. Raises their error after the bound, or when told to stop.

        The bound holds across nested calls: a poll may call the listener, which restores.
        """
        delay_s = RETRY_FIRST_S
        while True:
            try:
                result = action()
            except OUTAGES as error:
                now = self._clock.monotonic_s()
                if self._give_up_s is None:
                    self._give_up_s = now + self._outage_s_max
                    self.on_outage(error)
                self.progress.waits(error.message)
                left_s = self._give_up_s - now
                if left_s <= 0 or self._stop.is_set():
                    raise
            else:
                if self._give_up_s is not None:
                    self._give_up_s = None
                    self.progress.waits(None)
                    self.on_outage(None)
                return result
            self._stop.wait(min(delay_s, left_s))
            delay_s = min(delay_s * 2, RETRY_MAX_S)
