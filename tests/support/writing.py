"""A log, a producer over it, and small runs to write: for tests of everything that writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal, overload

from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.memory import Faults, MemoryLog
from tracklog.infra.log.memory_store import MemoryStore
from tracklog.infra.log.open import open_log
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.infra.settings import WriterSettings
from tracklog.producers.history import read_history
from tracklog.producers.producer import EventProducer
from tracklog.schemas.codec import Event
from tracklog.schemas.events import (
    Authorized,
    ContextBuilt,
    EventBody,
    ModelReplied,
    TaskStarted,
    ToolIntent,
    ToolResult,
)
from tracklog.schemas.topics import Topics, topic_specs
from tracklog.schemas.values import (
    ZERO_HASH,
    Body,
    Driver,
    Effect,
    Place,
    ResultStatus,
    Ruling,
    Settled,
    ToolCall,
)

HEAD_ONE = (0, 0, ZERO_HASH)


def start(task: str = "book a trip") -> TaskStarted:
    return TaskStarted(driver=Driver.LIBRARY, task=Body.of(task), agent="traveller")


def call_events(count: int) -> list[EventBody]:
    """Whole turns: context, reply with one call, authorization, recorded intent, result."""
    out: list[EventBody] = []
    for n in range(count):
        call = ToolCall(call_id=f"c{n}", tool="search", arguments='{"q": "flights"}')
        out += [
            ContextBuilt(edits=(), context_hash=ZERO_HASH, messages=0, rule_version="1"),
            ModelReplied(reply=Body.of(f"reply {n}"), tool_calls=(call,)),
            Authorized(call_id=call.call_id, ruling=Ruling.ALLOW, policy_version="1"),
            ToolIntent(
                call_id=call.call_id,
                tool=call.tool,
                arguments=Body.of(call.arguments),
                effect=Effect.READONLY,
                place=Place.RECORDED,
            ),
            ToolResult(
                call_id=call.call_id, status=ResultStatus.OK, output=Body.of(f"out {n}"), settled=Settled.RECORDED
            ),
        ]
    return out


WORK = call_events(1)


def make_topics(log: Log, topics: Topics, partitions: int = 3, replicas: int = 1) -> None:
    log.create(
        topic_specs(
            topics,
            partitions=partitions,
            replication_factor=replicas,
            min_insync_replicas=max(1, replicas - 1),
            max_message_bytes=1024 * 1024,
        )
    )


@asynccontextmanager
async def writing(
    *, store: MemoryStore | None = None, faults: Faults | None = None, **settings: Any
) -> AsyncIterator[tuple[MemoryLog, EventProducer]]:
    """A producer over an in-memory log, with the faults asked for; the topics exist before the first fault."""
    clock = SystemClock()
    log = MemoryLog(store, now_ms=lambda: clock.now_us() // 1000)
    make_topics(log, Topics())
    log.faults = faults
    async with EventProducer(
        log, topics=Topics(), clock=clock, entropy=SystemEntropy(), settings=WriterSettings(**settings)
    ) as producer:
        yield log, producer
    log.close()


@asynccontextmanager
async def on_log(
    url: str,
    prefix: str,
    *,
    create: bool = True,
    kafka_options: dict[str, str] | None = None,
    replicas: int = 1,
    **settings: Any,
) -> AsyncIterator[tuple[Log, EventProducer]]:
    """A producer over a real log, with topics of its own."""
    log, topics = open_log(url, kafka_options=kafka_options), Topics(prefix)
    try:
        if create:
            make_topics(log, topics, replicas=replicas)
        async with EventProducer(
            log, topics=topics, clock=SystemClock(), entropy=SystemEntropy(), settings=WriterSettings(**settings)
        ) as producer:
            yield log, producer
    finally:
        log.close()


@overload
def read_accepted(log: Log, trajectory_id: str, *, prefix: str = ...) -> list[Event]: ...
@overload
def read_accepted(log: Log, trajectory_id: str, *, raw: Literal[True]) -> list[Record]: ...
def read_accepted(
    log: Log, trajectory_id: str, *, prefix: str = "tracklog", raw: bool = False
) -> list[Event] | list[Record]:
    """The accepted events of a trajectory; `raw`: all of its records as they are in the log."""
    topic = Topics(prefix).events
    if not raw:
        return [event for event, _ in read_history(log, topic, trajectory_id)[1]]
    partition = partition_of(trajectory_id.encode(), log.partition_count(topic))
    bounds = log.bounds(topic, partition)
    key = trajectory_id.encode()
    return [r for r in read_range(log, topic, partition, bounds.first, bounds.end) if r.key == key]
