"""One small trajectory, written and read back: does an installation do what it is for?

It is written as every program writes (claim, events, barrier), read from the log by a reader that knows nothing of the
writer, and waited for in the view. It stays in the log, where nothing is ever removed, under a name of its own.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from tracklog.consumers.read import Reader
from tracklog.infra.clock import Clock, Entropy
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.settings import Settings
from tracklog.processors import trajectories
from tracklog.processors.redis_store import live_keys
from tracklog.producers.connection import producer_of
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import StoreError, TamperedRecord
from tracklog.schemas.events import TaskEnded, TaskStarted
from tracklog.schemas.values import Body, Driver, Ending

__all__ = ["AGENT", "POLL_S", "Written", "await_view", "read_back", "write"]

AGENT: Final = "selftest"
POLL_S: Final = 0.2
"""Between two looks at the view."""


class Written(NamedTuple):
    """A trajectory in the log. `hashes` are those of its events, in order; `first` is an offset at or before them."""

    trajectory_id: str
    partition: int
    first: int
    hashes: tuple[bytes, ...]
    barrier: str


async def write(settings: Settings, log: Log, entropy: Entropy) -> Written:
    """Appends a claim, a start and an end, each durable. Raises what the producer raises."""
    topic = settings.topic_names.events
    trajectory_id = f"{AGENT}-{entropy.nonce().hex()[:12]}"
    partition = partition_of(trajectory_id.encode(), await asyncio.to_thread(log.partition_count, topic))
    first = (await asyncio.to_thread(log.bounds, topic, partition)).end
    producer = await asyncio.to_thread(producer_of, settings, log)
    async with (
        producer,
        await producer.claim(trajectory_id, owner=AGENT, driver=Driver.LIBRARY, tenant=settings.tenant) as writer,
    ):
        start = TaskStarted(driver=Driver.LIBRARY, task=Body.of("append and read back"), agent=AGENT)
        started = await writer.append(start)
        await writer.barrier()
        ended = await writer.append(TaskEnded(ending=Ending.COMPLETED))
        await writer.barrier()
        return Written(trajectory_id, partition, first, (started.hash, ended.hash), producer.level)


def read_back(settings: Settings, log: Log, written: Written) -> list[int]:
    """The offsets of all its events, as the log gives them back. Raises TamperedRecord when one is missing."""
    topic, key = settings.topic_names.events, written.trajectory_id.encode()
    end = log.bounds(topic, written.partition).end
    records = [one for one in read_range(log, topic, written.partition, written.first, end) if one.key == key]
    found = {decode_event(one.key, one.value, one.headers).hash for one in records}
    missing = [digest.hex()[:12] for digest in written.hashes if digest not in found]
    if missing:
        raise TamperedRecord(
            f"{written.trajectory_id}: the log took events and does not give them back: {', '.join(missing)}",
            hint=f"look at partition {written.partition} from offset {written.first}: tracklog replay events",
        )
    return [one.offset for one in records]


async def await_view(
    client: RedisClient, prefix: str, written: Written, last_offset: int, clock: Clock, timeout_s: float
) -> None:
    """Returns when the view shows the trajectory as ended.

    Raises ReadBehind when it does not within `timeout_s`, StoreError when nobody has begun to fold by then.
    """
    deadline = clock.monotonic_s() + timeout_s
    while await asyncio.to_thread(live_keys, client, prefix, trajectories.NAME) is None:
        if clock.monotonic_s() >= deadline:
            break  # the reader says what is missing
        await asyncio.sleep(POLL_S)
    left_s = max(0.0, deadline - clock.monotonic_s())
    reader = Reader(client, prefix=prefix).seeing({written.partition: last_offset}, wait_s=left_s)
    found = (await reader.state(written.trajectory_id)).value
    if found is None or found.status != Ending.COMPLETED.value:
        raise StoreError(
            f"the view has {written.trajectory_id} folded and shows it as {found.status if found else 'unknown'}",
            hint="compare it with the log: tracklog verify --all --against redis",
        )
