"""A log whose beginning was trimmed, read by those who must know of a trajectory from its first event."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.writing import WORK, start, writing
from tracklog.consumers.replay import END, Filter, follow, resolve
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.memory import MemoryLog
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Bounds
from tracklog.producers.client import Client
from tracklog.producers.history import Histories, read_history
from tracklog.producers.mailbox import LogMailbox
from tracklog.producers.post import Poster
from tracklog.producers.producer import EventProducer
from tracklog.producers.whereabouts import look_up
from tracklog.schemas.errors import TrajectoryTrimmed
from tracklog.schemas.events import TaskEnded
from tracklog.schemas.inbox import Cancel
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Driver, Ending, InboxId

TOPICS = Topics()
EVENTS = TOPICS.events


async def ended(producer: EventProducer, trajectory_id: str) -> None:
    writer = await producer.claim(trajectory_id, owner="here", driver=Driver.LIBRARY)
    for body in (start(), *WORK, TaskEnded(ending=Ending.COMPLETED)):
        await writer.append(body)
    await writer.release()


def bounds_of(log: MemoryLog, trajectory_id: str) -> Bounds:
    return log.bounds(EVENTS, partition_of(trajectory_id.encode(), log.partition_count(EVENTS)))


def trim(log: MemoryLog, trajectory_id: str, before: int | None = None) -> None:
    """The partition of a trajectory, to its end or below an offset."""
    partition = partition_of(trajectory_id.encode(), log.partition_count(EVENTS))
    log.delete_records(EVENTS, {partition: log.bounds(EVENTS, partition).end if before is None else before})


@pytest.mark.parametrize("before", [None, 1], ids=["all of it", "its first event"])
async def test_one_whose_beginning_is_gone_is_not_claimed_as_if_it_were_new(before: int | None) -> None:
    async with writing() as (log, producer):
        await ended(producer, "t-1")
        trim(log, "t-1", before)
        end = bounds_of(log, "t-1").end
        producer.forget("t-1")

        with pytest.raises(TrajectoryTrimmed, match=r"'t-1'.*") as caught:
            await producer.claim("t-1", owner="other", driver=Driver.LIBRARY)

        assert caught.value.hint is not None
        assert "cold.url" in caught.value.hint
        assert bounds_of(log, "t-1").end == end, "nothing was appended"


async def test_one_that_begins_behind_what_was_trimmed_goes_on_beside_one_that_is_refused() -> None:
    async with writing() as (log, producer):
        await ended(producer, "t-1")
        at = bounds_of(log, "t-1").end
        names = [f"u-{n}" for n in range(50) if _beside("t-1", f"u-{n}")]
        writer = await producer.claim(names[0], owner="here", driver=Driver.LIBRARY)
        trim(log, "t-1", at)
        producer.forget("t-1")
        producer.forget(names[0])

        asked = [producer.track_of(one) for one in (names[0], "t-1")]
        kept, refused = await asyncio.gather(*asked, return_exceptions=True)

        assert not isinstance(kept, BaseException)
        assert kept.state.events == 1
        assert isinstance(refused, TrajectoryTrimmed)
        await writer.append(start())
        await writer.barrier()
        assert (await producer.track_of(names[0])).state.events == 2


async def test_what_was_followed_when_its_partition_was_cut_is_refused_for_good() -> None:
    """It was frozen meanwhile: its own late claim would look like the first one."""
    async with writing() as (log, producer):
        other = EventProducer(
            log, topics=TOPICS, clock=SystemClock(), entropy=producer._entropy, settings=producer.settings
        )
        async with other:
            assert (await producer.track_of("t-1")).state.events == 0
            await ended(other, "t-1")
            trim(log, "t-1")

            for _ in range(2):
                with pytest.raises(TrajectoryTrimmed):
                    await producer.claim("t-1", owner="here", driver=Driver.LIBRARY)
                producer.forget("t-1")


async def test_reading_one_that_is_gone_says_so_and_one_that_is_there_is_read() -> None:
    async with writing() as (log, producer):
        await ended(producer, "t-1")
        await ended(producer, _other("t-1"))
        trim(log, "t-1", 1)

        with pytest.raises(TrajectoryTrimmed, match="kept from offset 1 on"):
            read_history(log, EVENTS, "t-1")
        with pytest.raises(TrajectoryTrimmed):
            await Histories(log, EVENTS).read("t-1")
        with pytest.raises(TrajectoryTrimmed):
            look_up(log, TOPICS, ["t-1"])
        with pytest.raises(TrajectoryTrimmed):
            await Client(log, TOPICS).result("t-1")
        assert read_history(log, EVENTS, _other("t-1"))[0].ended


async def test_a_mailbox_goes_on_behind_what_was_trimmed_while_it_was_open() -> None:
    async with writing() as (log, _):
        poster = Poster(log, TOPICS, clock=SystemClock())
        box = LogMailbox(log, TOPICS.inbox, "t-1", clock=SystemClock())
        await box.look()
        for seq in range(3):
            await poster.post("t-1", Cancel(by="ada"), inbox_id=InboxId(source="ada", seq=seq))
        log.delete_records(TOPICS.inbox, {partition_of(b"t-1", log.partition_count(TOPICS.inbox)): 2})

        assert not await box.wait(0.0)
        assert await box.wait(10.0)

        assert [one.inbox_id.seq for one in box.waiting()] == [2]


async def test_following_goes_on_behind_what_was_trimmed() -> None:
    async with writing() as (log, producer):
        ranges = resolve(log, EVENTS, trajectory_id="t-1", frm=END)
        await ended(producer, "t-1")
        trim(log, "t-1", 5)

        found = [one.record.offset for one in follow(log, EVENTS, ranges, Filter(), clock=SystemClock(), for_s=0.3)]

        assert found == list(range(5, bounds_of(log, "t-1").end))


def _beside(one: str, other: str, partitions: int = 3) -> bool:
    return partition_of(one.encode(), partitions) == partition_of(other.encode(), partitions)


def _other(one: str) -> str:
    return next(f"v-{n}" for n in range(50) if _beside(one, f"v-{n}"))
