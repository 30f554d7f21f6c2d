"""What a worker reads when it starts, and when it takes a trajectory up."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.sessions import ScriptedModel, says
from tests.support.working import Works, agent_of
from tests.support.writing import read_accepted
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.memory import MemoryLog
from tracklog.infra.log.memory_store import MemoryReader, MemoryStore
from tracklog.infra.log.partitioner import partition_of
from tracklog.schemas.topics import Topics

EVENTS = Topics().events


class WatchedLog(MemoryLog):
    """Keeps from where the events were read."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store, now_ms=lambda: SystemClock().now_us() // 1000)
        self.read_from: list[tuple[int, int]] = []

    def reader(self, topic: str, starts: Mapping[int, int], *, follows: bool = False) -> MemoryReader:
        if topic == EVENTS:
            self.read_from += starts.items()
        return super().reader(topic, starts)


async def test_a_worker_reads_a_partition_once_and_a_trajectory_from_its_own_beginning() -> None:
    works, model = Works(), ScriptedModel(says("which day?"), says("done"))
    ids = [await works.client.submit("traveller", "book a trip", id=f"old-{n}") for n in range(8)]
    async with works.worker(agent_of(model, talks_until="STOP")):
        await works.until(lambda: all(works.parked(one) == "message" for one in ids))
    old = max(ids, key=lambda one: first_offset(works, one))
    ends = {p: works.log.bounds(EVENTS, p).end for p in range(2)}
    works.new_log = lambda: watched  # type: ignore[method-assign]
    watched = WatchedLog(works.store)

    async with works.worker(agent_of(model, talks_until="STOP")):
        for one in (old, "new"):
            await works.client.submit("traveller", "book a trip", id=one)
            await works.client.send(one, "STOP")
        results = [await works.client.result(one, wait_s=10) for one in (old, "new")]

    assert [result.turns for result in results] == [1, 1]
    assert first_offset(works, old) > 0
    again = [(p, offset) for p, offset in watched.read_from if 0 < offset < ends[p]]
    assert sorted(one for one in watched.read_from if one[1] == 0) == [(0, 0), (1, 0)]
    assert set(again) == {(partition_of(old.encode(), 2), first_offset(works, old))}


def first_offset(works: Works, trajectory_id: str) -> int:
    return read_accepted(works.log, trajectory_id, raw=True)[0].offset
