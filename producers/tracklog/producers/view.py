"""Reading back: what the log has accepted of the trajectories that this process writes (DESIGN §5, §8).

One thread follows the events topic for the whole process. Records of trajectories that are not followed
are skipped by their key; those that are, are kept as they came and folded when somebody asks. Requests
that arrive while the thread reads are answered together, so many read-backs cost about as much as one.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from tracklog.infra.clock import Clock
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Bounds, Log, Reader, Record
from tracklog.infra.log.ranges import read_range
from tracklog.infra.log.trimmed import beginning_of, beginning_trimmed, pass_trimmed
from tracklog.producers.spans import NOWHERE, Index, Span, Spans, grown, joined
from tracklog.producers.track import Own, Track
from tracklog.schemas.errors import LogUnavailable, OffsetTrimmed, TrajectoryTrimmed
from tracklog.schemas.state import State

POLL_RECORDS_MAX: Final = 5000
POLL_S: Final = 0.25
"""How long one poll waits before the bound of the whole request is looked at again."""

Tracks = dict[str, Track]
Request = tuple[frozenset[str], bool, "asyncio.Future[Tracks]"]


class LogView:
    """The accepted state of followed trajectories. Its methods are called from one event loop."""

    def __init__(self, log: Log, topic: str, *, clock: Clock, window: int, timeout_s: float) -> None:
        self._log = log
        self._topic = topic
        self._clock = clock
        self._window = window
        self._timeout_s = timeout_s
        self._tracks: dict[bytes, Track] = {}
        self._starts: dict[bytes, int] = {}
        self._spans = Spans()
        self._indices: deque[tuple[int, Index | None]] = deque()
        self._partitions = 0
        self._firsts: dict[int, int] = {}
        """The first offset kept of each partition that was scanned, as it was then."""
        self._lost: set[bytes] = set()
        """Followed while something of their partitions was trimmed before it was read."""
        self._reader: Reader | None = None
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._serve, name="tracklog-view", daemon=True)
        self._thread.start()

    async def refresh(self, trajectory_ids: Iterable[str], *, record: bool = False) -> Tracks:
        """Follows the trajectories and reads to the present end of their partitions; folds them.

        With `record` their tracks keep what was accepted, from the first event on, until they are told to stop; they
        are not folded here.

        The first call for a trajectory scans its partition once, for all that asked at the same time.
        A log that does not answer is asked again until the bound runs out, so that a leader may change
        meanwhile; then LogUnavailable. Raises TopicMissing, ClientFatal at once, and TrajectoryTrimmed for one whose
        beginning may have been trimmed: nobody can tell then whether it is new or has ended.
        """
        answer: asyncio.Future[Tracks] = self._loop.create_future()
        self._requests.put((frozenset(trajectory_ids), record, answer))
        tracks = await answer
        for track in tracks.values() if not record else ():
            track.fold()
        return tracks

    def starts_at(self, trajectory_id: str, offset: int) -> None:
        """No record of the trajectory is before this offset, as this process has read: a scan need not go further back.

        It rests on what was read in the log, never on what somebody says: of a trajectory whose beginning is passed
        over, a claim would look accepted that is not.
        """
        self._starts[trajectory_id.encode()] = offset

    def index(self, partition: int, index: Index | None) -> None:
        """Where trajectories of a partition lie, as this process has read all of it; None: it is not to be known."""
        self._indices.append((partition, index))

    def forget(self, trajectory_id: str) -> None:
        """Stops following; a later refresh scans again."""
        self._tracks.pop(trajectory_id.encode(), None)
        self._starts.pop(trajectory_id.encode(), None)

    def wrote(self, own: Own) -> None:
        """An event that is appended from here, of a trajectory that may be followed."""
        track = self._tracks.get(own.stamp.trajectory_id.encode())
        if track is not None:
            track.wrote(own)

    def stop_recording(self, trajectory_id: str) -> None:
        """Goes on following, without keeping events."""
        track = self._tracks.get(trajectory_id.encode())
        if track is not None:
            track.stop_recording()

    async def close(self) -> None:
        """Stops the thread and closes its reader."""
        self._requests.put(None)
        await asyncio.to_thread(self._thread.join, self._timeout_s)

    def _serve(self) -> None:
        try:
            while True:
                waiting = self._take()
                if waiting is None:
                    return
                self._answer(waiting)
        finally:
            if self._reader is not None:
                self._reader.close()

    def _take(self) -> list[Request] | None:
        """All requests that are waiting, at least one; None to stop."""
        taken = []
        item = self._requests.get()
        while item is not None:
            taken.append(item)
            try:
                item = self._requests.get_nowait()
            except queue.Empty:
                return taken
        for _, _, answer in taken:
            self._settle(answer, None, LogUnavailable("the view of the log was closed"))
        return None

    def _answer(self, waiting: list[Request]) -> None:
        ids = frozenset().union(*(ids for ids, _, _ in waiting))
        recorded = frozenset().union(*(ids for ids, record, _ in waiting if record))
        deadline = self._clock.monotonic_s() + self._timeout_s
        while True:
            try:
                tracks = self._read_back(ids, recorded, deadline)
                break
            except LogUnavailable as error:
                if self._clock.monotonic_s() > deadline:
                    return self._fail(waiting, error)
            except Exception as error:  # noqa: BLE001 - whatever it was, those who wait must hear of it
                return self._fail(waiting, error)
        for asked, _, answer in waiting:
            lost = next((one for one in sorted(asked) if one not in tracks), None)
            if lost is None:
                self._settle(answer, {one: tracks[one] for one in asked}, None)
            else:
                self._settle(answer, None, self._trimmed(lost))

    def _trimmed(self, trajectory_id: str) -> TrajectoryTrimmed:
        partition = partition_of(trajectory_id.encode(), self._partitions)
        return beginning_trimmed(self._topic, partition, self._firsts.get(partition, 0), trajectory_id)

    def _fail(self, waiting: list[Request], error: Exception) -> None:
        for _, _, answer in waiting:
            self._settle(answer, None, error)

    def _settle(
        self,
        answer: asyncio.Future[Tracks],
        tracks: Tracks | None,
        error: Exception | None,
    ) -> None:
        def on_loop() -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            elif tracks is not None:
                answer.set_result(tracks)

        self._loop.call_soon_threadsafe(on_loop)

    def _read_back(self, ids: frozenset[str], recorded: frozenset[str], deadline: float) -> Mapping[str, Track]:
        reader = self._follow()
        self._take_indices(reader)
        tracks: Tracks = {}
        scans: dict[int, dict[bytes, Track]] = {}
        for one in ids:
            key = one.encode()
            partition = partition_of(key, self._partitions)
            track = self._tracks.get(key)
            if track is None or (one in recorded and not track.recording):
                track = scans.setdefault(partition, {})[key] = Track(State(one), self._window)
                if one in recorded:
                    track.record()
            tracks[one] = track
        for partition, fresh in scans.items():
            self._scan(partition, fresh, reader.position(partition))
            self._tracks.update(fresh)
        self._catch_up(reader, {partition_of(one.encode(), self._partitions) for one in ids}, deadline)
        for one in [one for one in ids if self._is_cut(one)]:
            del tracks[one]
            self.forget(one)
        return tracks

    def _is_cut(self, trajectory_id: str) -> bool:
        """Whether its beginning may have been trimmed: nobody then knows how it stands, and a claim of one that has
        ended would look accepted."""
        key = trajectory_id.encode()
        track = self._tracks.get(key)
        trimmed = self._firsts.get(partition_of(key, self._partitions), 0) > 0
        return key in self._lost or track is None or (trimmed and not track.begins)

    def _follow(self) -> Reader:
        """The reader over all partitions, from their ends at the first request on."""
        if self._reader is None:
            self._partitions = self._log.partition_count(self._topic)
            ends = self._log.ends(self._topic, range(self._partitions))
            self._reader = self._log.reader(self._topic, ends, follows=True)
        return self._reader

    def _scan(self, partition: int, tracks: Mapping[bytes, Track], until: int) -> None:
        """What is before the shared reader, for trajectories that are followed from now on."""
        bounds = self._log.bounds(self._topic, partition)
        self._firsts[partition] = bounds.first
        places = {key: self._spans.get(partition, key) for key in tracks}
        found = {key: NOWHERE for key, known in places.items() if known is None}
        whole = [Span(max(self._beginning(partition, key, bounds), bounds.first), until - 1) for key in found]
        for stretch in joined([*(span for known in places.values() for span in known or ()), *whole]):
            for record in read_range(
                self._log, self._topic, partition, stretch.first, min(stretch.last + 1, until), bounds=bounds
            ):
                track = tracks.get(record.key) if record.key is not None else None
                if track is None or record.key is None:
                    continue
                track.keep(record)
                if record.key in found:
                    found[record.key] = grown(found[record.key], record.offset)
        for key, seen in found.items():
            self._spans.found(partition, key, seen)

    def _beginning(self, partition: int, key: bytes, bounds: Bounds) -> int:
        known = self._starts.get(key)
        return beginning_of(self._log, self._topic, partition, [key], bounds.first) if known is None else known

    def _take_indices(self, reader: Reader) -> None:
        """What was read since an index was made is added to it."""
        while self._indices:
            partition, index = self._indices[0]
            if index is None:
                self._spans.drop(partition)
            else:
                upto = reader.position(partition)
                missed = [
                    (record.key, record.offset)
                    for record in read_range(self._log, self._topic, partition, index.end, upto)
                ]
                if self._log.bounds(self._topic, partition).first <= index.end:  # else some of them were trimmed
                    self._spans.put(partition, index)
                for key, offset in missed:
                    self._spans.saw(partition, key, offset)
            self._indices.popleft()

    def _catch_up(self, reader: Reader, partitions: set[int], deadline: float) -> None:
        ends = self._log.ends(self._topic, partitions)
        while any(reader.position(p) < end for p, end in ends.items()):
            if self._clock.monotonic_s() > deadline:
                raise LogUnavailable(
                    f"reading {self._topic} back to its end took more than {self._timeout_s:g} s at {self._log.url}",
                    hint="check the broker's load, or raise writer.reconcile_timeout_s",
                )
            for record in self._poll(reader):
                self._keep(record)

    def _poll(self, reader: Reader) -> list[Record]:
        try:
            return reader.poll(POLL_RECORDS_MAX, POLL_S)
        except OffsetTrimmed:
            passed = pass_trimmed(self._log, self._topic, reader, range(self._partitions))
            if not passed:
                raise
            for partition in passed:
                self._cut(partition)
            return []

    def _cut(self, partition: int) -> None:
        """Of what was followed there something may be missing: it is refused from now on. To scan it again would not
        do, since a claim that was late would then look like the first."""
        self._firsts[partition] = self._log.bounds(self._topic, partition).first
        self._spans.drop(partition)
        cut = [key for key in self._tracks if partition_of(key, self._partitions) == partition]
        self._lost.update(cut)
        for key in cut:
            del self._tracks[key]

    def _keep(self, record: Record) -> None:
        self._spans.saw(record.partition, record.key, record.offset)
        track = self._tracks.get(record.key) if record.key is not None else None
        if track is not None:
            track.keep(record)
