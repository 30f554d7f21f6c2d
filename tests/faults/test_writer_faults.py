"""The writer while brokers freeze and die (reports 1, 2, 3 of the public list; DESIGN §5).

Lost write, unobserved write, duplicate on leader change: none may be visible in what is accepted.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.conftest import ClusterFactory
from tests.support.writing import call_events, on_log, read_accepted, start
from tracklog.infra.stack.kafka_server import KafkaServer
from tracklog.producers.producer import EventProducer
from tracklog.schemas.errors import LogUnavailable, Undecided
from tracklog.schemas.events import TaskEnded
from tracklog.schemas.values import Driver, Ending

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]

QUICK = {"delivery.timeout.ms": "1500", "request.timeout.ms": "1000", "socket.timeout.ms": "1000"}


async def test_a_broker_frozen_past_the_time_out_loses_and_doubles_nothing(
    kafka_server: KafkaServer, fresh_prefix: str
) -> None:
    """Given a frozen broker, an append times out: unknown. When it wakes, the log has each event once."""
    node = kafka_server.nodes[0].process
    url = f"kafka://{kafka_server.bootstrap}"
    async with on_log(url, fresh_prefix, kafka_options=QUICK) as (log, producer):
        writer = await producer.claim("t-1", owner="here", driver=Driver.LIBRARY)
        await writer.append(start())
        await writer.barrier()
        node.freeze()
        for body in call_events(1):
            await writer.append(body)
        waiting = asyncio.create_task(writer.barrier())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 4)
        node.thaw()
        await asyncio.wait_for(waiting, 90)
        state = await writer.confirm()
        bodies = [event.body for event in read_accepted(log, "t-1", prefix=fresh_prefix)]
    assert bodies[1:] == [start(), *call_events(1)]
    assert state.faults == 0


async def test_a_broker_that_stays_frozen_is_unknown_within_the_bound(
    kafka_server: KafkaServer, fresh_prefix: str
) -> None:
    node = kafka_server.nodes[0].process
    url = f"kafka://{kafka_server.bootstrap}"
    async with on_log(url, fresh_prefix, kafka_options=QUICK, reconcile_timeout_s=2.0) as (_, producer):
        writer = await producer.claim("t-1", owner="here", driver=Driver.LIBRARY)
        node.freeze()
        await writer.append(start())
        with pytest.raises((Undecided, LogUnavailable)):
            await asyncio.wait_for(writer.barrier(), 60)
        node.thaw()


async def _write(producer: EventProducer, trajectory_id: str, turns: int) -> Any:
    writer = await producer.claim(trajectory_id, owner="here", driver=Driver.LIBRARY)
    await writer.append(start())
    for n, body in enumerate(call_events(turns)):
        await writer.append(body)
        if n % 5 == 4:
            await writer.barrier()
    await writer.append(TaskEnded(ending=Ending.COMPLETED))
    return await writer.confirm()


async def test_leaders_killed_in_a_loop_leave_every_event_once(
    kafka_cluster_factory: ClusterFactory, fresh_prefix: str
) -> None:
    """Three brokers, RF 3, min ISR 2; each is killed and started again in turn while eight runs are written."""
    cluster = kafka_cluster_factory(nodes=3)
    turns = 40
    async with on_log(f"kafka://{cluster.bootstrap}", fresh_prefix, replicas=3) as (log, producer):
        assert producer.level == "replicated"
        runs = [asyncio.create_task(_write(producer, f"t-{n}", turns)) for n in range(8)]
        for node in cluster.nodes:
            await asyncio.to_thread(node.process.kill)
            await asyncio.to_thread(cluster.restart, node)
        states = await asyncio.wait_for(asyncio.gather(*runs), 200)
        for n, state in enumerate(states):
            events = read_accepted(log, f"t-{n}", prefix=fresh_prefix)
            assert state.faults == 0
            assert [e.envelope.seq for e in events] == list(range(len(events)))
            assert [e.body for e in events[1:]] == [start(), *call_events(turns), TaskEnded(ending=Ending.COMPLETED)]
