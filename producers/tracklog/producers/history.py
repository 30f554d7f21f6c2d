"""The accepted events of one trajectory, read from the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log, Position, Record
from tracklog.infra.log.ranges import read_range
from tracklog.infra.log.trimmed import beginning_of, check_beginning
from tracklog.producers.snapshot import Recall
from tracklog.schemas.codec import Event, decode_event
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.events import TaskStarted
from tracklog.schemas.fold import fold
from tracklog.schemas.head import Verdict
from tracklog.schemas.state import State

Accepted = tuple[Event, Position]
Folded = tuple[State, list[Accepted]]


class History(NamedTuple):
    """Of one trajectory. With a `recall` the events before it are left out on which nothing rests."""

    state: State
    accepted: list[Accepted]
    recall: Recall | None = None

    @property
    def events(self) -> list[Event]:
        return [event for event, _ in self.accepted]


def started_of(events: Iterable[Event]) -> TaskStarted | None:
    """What a trajectory with these events was started with, None before that."""
    return next((event.body for event in events if isinstance(event.body, TaskStarted)), None)


def read_history(log: Log, topic: str, trajectory_id: str) -> Folded:
    """(state, accepted events with their positions), to the present end of the partition.

    Scans the partition: Kafka cannot read one key. Blocks; raises what reading a range raises, and TrajectoryTrimmed
    when nothing of it is accepted in a log whose beginning was trimmed.
    """
    found = read_histories(log, topic, (trajectory_id,))[trajectory_id]
    if not found[1]:
        check_beginning(log, topic, trajectory_id)
    return found


def read_histories(
    log: Log, topic: str, trajectory_ids: Iterable[str], on_record: Callable[[str, Record], None] = lambda *_: None
) -> dict[str, Folded]:
    """The same of many, by one scan of each partition that has some of them. `on_record` is told of each record under
    the name of one of them, accepted or not."""
    found = {trajectory_id: (State(trajectory_id), list[Accepted]()) for trajectory_id in trajectory_ids}
    keys = {trajectory_id.encode(): trajectory_id for trajectory_id in found}
    partitions = log.partition_count(topic)
    for partition in sorted({partition_of(key, partitions) for key in keys}):
        bounds = log.bounds(topic, partition)
        own = [key for key in keys if partition_of(key, partitions) == partition]
        start = beginning_of(log, topic, partition, own, bounds.first)
        for record in read_range(log, topic, partition, start, bounds.end, bounds=bounds):
            trajectory_id = keys.get(record.key or b"")
            if trajectory_id is not None:
                on_record(trajectory_id, record)
                found[trajectory_id] = _with(found[trajectory_id], record)
    return found


class Histories:
    """Reads histories for those who ask at the same time by one scan. Of one event loop."""

    def __init__(self, log: Log, topic: str) -> None:
        self._log = log
        self._topic = topic
        self._asked: dict[str, asyncio.Future[Folded]] = {}
        self._reading = asyncio.Lock()

    async def read(self, trajectory_id: str) -> Folded:
        """As `read_history`, to an end that is asked for after this was called."""
        asked = self._asked.get(trajectory_id)
        if asked is None:
            asked = self._asked[trajectory_id] = asyncio.get_running_loop().create_future()
        async with self._reading:
            if not asked.done():
                await self._answer()
        if not asked.result()[1]:
            await asyncio.to_thread(check_beginning, self._log, self._topic, trajectory_id)
        return asked.result()

    async def _answer(self) -> None:
        wanted, self._asked = self._asked, {}
        try:
            found = await asyncio.to_thread(read_histories, self._log, self._topic, list(wanted))
        except asyncio.CancelledError:
            self._asked = {**wanted, **self._asked}  # those who wait behind ask again
            raise
        except Exception as error:  # noqa: BLE001 - raised where each waits
            for asked in wanted.values():
                asked.set_exception(error)
            return
        for trajectory_id, asked in wanted.items():
            asked.set_result(found[trajectory_id])


def _with(folded: Folded, record: Record) -> Folded:
    state, accepted = folded
    try:
        event = decode_event(record.key, record.value, record.headers)
    except ForeignRecord:
        return folded  # nobody's event; whoever owns the partition quarantines it
    state, judgement = fold(state, event)
    if judgement.verdict is Verdict.ACCEPTED:
        accepted.append((event, Position(record.partition, record.offset, record.timestamp_ms)))
    return state, accepted
