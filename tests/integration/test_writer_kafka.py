"""The writer on a real broker (DESIGN §5)."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.writing import call_events, on_log, read_accepted, start
from tracklog.infra.log.open import open_log
from tracklog.schemas.errors import ClaimLost, Fenced, TopicMissing
from tracklog.schemas.events import TaskEnded
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Driver, Ending


async def test_a_run_written_on_kafka_reads_back_as_written(kafka_bootstrap: str, fresh_prefix: str) -> None:
    async with on_log(f"kafka://{kafka_bootstrap}", fresh_prefix) as (log, producer):
        writer = await producer.claim("t-1", owner="here", driver=Driver.LIBRARY)
        await writer.append(start())
        for body in call_events(2):
            await writer.append(body)
        await writer.append(TaskEnded(ending=Ending.COMPLETED))
        state = await writer.confirm()
        await writer.release()
        events = read_accepted(log, "t-1", prefix=fresh_prefix)
    assert producer.level == "fsync"
    assert state.status == "completed"
    assert state.irregular == 0
    assert [e.body for e in events[1:-1]] == [start(), *call_events(2), TaskEnded(ending=Ending.COMPLETED)]


async def test_two_processes_that_claim_at_once_have_one_owner_each_epoch(
    kafka_bootstrap: str, fresh_prefix: str
) -> None:
    url = f"kafka://{kafka_bootstrap}"
    async with on_log(url, fresh_prefix) as (log, one), on_log(url, fresh_prefix) as (_, two):
        for n in range(5):
            outcomes = await asyncio.gather(
                one.claim(f"t-{n}", owner="one", driver=Driver.WORKER),
                two.claim(f"t-{n}", owner="two", driver=Driver.WORKER),
                return_exceptions=True,
            )
            events = read_accepted(log, f"t-{n}", prefix=fresh_prefix)
            assert [e.envelope.epoch for e in events] == list(range(len(events)))
            winners = [o for o in outcomes if not isinstance(o, BaseException)]
            assert all(isinstance(o, ClaimLost) for o in outcomes if isinstance(o, BaseException))
            assert len(winners) >= 1


async def test_a_takeover_fences_the_owner_of_another_process(kafka_bootstrap: str, fresh_prefix: str) -> None:
    url = f"kafka://{kafka_bootstrap}"
    async with on_log(url, fresh_prefix) as (log, one), on_log(url, fresh_prefix) as (_, two):
        first = await one.claim("t-1", owner="one", driver=Driver.WORKER)
        await first.append(start())
        await first.barrier()
        second = await two.claim("t-1", owner="two", driver=Driver.WORKER)
        await first.append(call_events(1)[0])
        with pytest.raises(Fenced):
            await first.confirm()
        await second.append(call_events(1)[0])
        await second.confirm()
        names = [e.name for e in read_accepted(log, "t-1", prefix=fresh_prefix)]
    assert names == ["OwnershipClaimed", "TaskStarted", "OwnershipClaimed", "ContextBuilt"]


async def test_a_missing_topic_is_named(kafka_bootstrap: str, fresh_prefix: str) -> None:
    log = open_log(f"kafka://{kafka_bootstrap}")
    with pytest.raises(TopicMissing, match=f"{fresh_prefix}.events"):
        async with on_log(log.url, fresh_prefix, create=False):
            pass
    log.close()
    assert Topics(fresh_prefix).events not in log.url
