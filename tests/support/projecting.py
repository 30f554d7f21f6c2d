"""A projection over a real log and a real Redis, and what its content must be: folded anew, by plain code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from tests.support.beside import beside
from tests.support.chains import Chain, append_all, interleaved, run_of
from tracklog.consumers.read import Answer, Reader
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.infra.settings_sections import LoopSettings, Settings
from tracklog.infra.stack.process import wait_until
from tracklog.processors.indexes import indexes_of
from tracklog.processors.processor import Seen
from tracklog.processors.running import Running, trajectories
from tracklog.processors.trajectory import Trajectory, see
from tracklog.processors.warm_log import decode_entry, decode_offsets
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.state import State, dump_state
from tracklog.schemas.values import Ending

T = TypeVar("T")

PARTITIONS = 3
CAUGHT_UP_S = 30.0


def said(asked: Coroutine[Any, Any, Answer[T]]) -> T:
    """What a reader answers, for those who do not wait in an event loop."""
    return _ran(asked).value


def _ran(asked: Coroutine[Any, Any, T]) -> T:
    """In a thread: the caller's may have an event loop that runs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asked).result(CAUGHT_UP_S)


class World(NamedTuple):
    """A log with its topics, a Redis, and the settings of an installation."""

    log: Log
    client: RedisClient
    settings: Settings

    @property
    def topic(self) -> str:
        return self.settings.topic_names.events

    def running(self) -> Running[Trajectory]:
        """A process's projection: another one at each call, as another process would have."""
        return trajectories(self.log, self.client, self.settings, clock=SystemClock(), entropy=SystemEntropy())

    def drain(self) -> dict[int, int]:
        return self.running().loop.drain()

    def reader(self) -> Reader:
        return Reader(self.client, prefix=self.settings.prefix, log=self.log)

    def positions(self) -> Mapping[int, int]:
        """How far the projection is folded."""
        return _ran(self.reader().as_of()).positions

    def ends(self) -> dict[int, int]:
        return {p: self.log.bounds(self.topic, p).end for p in range(self.log.partition_count(self.topic))}

    def records(self) -> Iterator[Record]:
        for partition in self.ends():
            bounds = self.log.bounds(self.topic, partition)
            yield from read_range(self.log, self.topic, partition, bounds.first, bounds.end)


@contextmanager
def world_on(log_url: str, redis_url: str, prefix: str, **settings: Any) -> Iterator[World]:
    """Small batches, so that a test has many of them."""
    loop = settings.pop("loop", LoopSettings(batch_records_max=40, batch_wait_s=0.0, poll_timeout_s=0.05))
    given = Settings.model_validate(
        {"prefix": prefix, "topics": {"partitions": PARTITIONS, **REPLICAS}, "loop": loop, **settings}
    )
    log = open_log(log_url)
    client = connect(redis_url, timeout_s=5)
    try:
        log.create(given.topic_specs())
        yield World(log, client, given)
    finally:
        log.close()
        client.close()


REPLICAS = {"replication_factor": 1, "min_insync_replicas": 1}


def some_runs(count: int, *, first: int = 0) -> list[Chain]:
    """Runs that differ in tenant, tools, model, labels, length and ending; every fifth is still running."""
    return [
        run_of(
            f"run-{n:04d}",
            turns=1 + n % 4,
            tenant=("acme", "umbrella")[n % 2],
            tools=(("search", "book"), ("search",), ("pay", "search", "book"))[n % 3],
            model=f"model-{n % 3}",
            labels={"order": f"W{n % 7}"},
            ending=None if n % 5 == 4 else (Ending.COMPLETED, Ending.FAILED)[n % 2],
        )
        for n in range(first, first + count)
    ]


def append_runs(world: World, count: int, *, first: int = 0) -> None:
    append_all(world.log, world.topic, interleaved(some_runs(count, first=first)))


def folded_anew(world: World) -> dict[str, tuple[Trajectory, list[Record]]]:
    """Every trajectory of the log by plain code: no batches, no store."""
    found: dict[str, tuple[Trajectory, list[Record]]] = {}
    for record in world.records():
        try:
            event = decode_event(record.key, record.value, record.headers)
        except ForeignRecord:
            continue
        name = event.envelope.trajectory_id
        before, records = found.setdefault(name, (Trajectory(State(name)), []))
        found[name] = (see(before, Seen(event, record)), [*records, record])
    return found


def assert_equals_fresh_fold(world: World) -> int:
    """States byte for byte, facts, indexes, kept records, offsets and positions. Returns how many trajectories."""
    expected = folded_anew(world)
    keys = world.running().store.keys
    for partition in world.ends():
        here = {name: one for name, one in expected.items() if one[0].partition == partition}
        stored = stored_under(world.client, keys.base(partition))
        assert_trajectories(world.topic, partition, here, stored)
        assert indexes_in(stored) == indexes_expected(here.values())
    assert world.positions() == world.ends()
    return len(expected)


def assert_trajectories(
    topic: str, partition: int, here: Mapping[str, tuple[Trajectory, list[Record]]], stored: Mapping[str, Any]
) -> None:
    assert {key[2:] for key in stored if key.startswith("t:")} == set(here)
    for name, (trajectory, records) in here.items():
        fields = stored[f"t:{name}"]
        assert fields[b"state"] == dump_state(trajectory.state), name
        assert fields[b"status"].decode() == trajectory.status
        assert int(fields[b"last_offset"]) == records[-1].offset
        assert int(fields[b"first_offset"]) == records[0].offset
        kept = [decode_entry(entry, topic, partition, name.encode()) for entry in stored[f"log:{name}"]]
        assert kept == records, name
        assert decode_offsets(stored[f"offsets:{name}"]) == [record.offset for record in records]


def indexes_expected(here: Any) -> dict[str, dict[bytes, float]]:
    expected: dict[str, dict[bytes, float]] = {}
    for trajectory, _ in here:
        for key in indexes_of(trajectory):
            expected.setdefault(key, {})[trajectory.trajectory_id.encode()] = float(trajectory.last_ms)
    return expected


def indexes_in(stored: Mapping[str, Any]) -> dict[str, dict[bytes, float]]:
    return {key: value for key, value in stored.items() if key.startswith("by:")}


def stored_under(client: Any, base: str) -> dict[str, Any]:
    """All keys under a base with their content, by what follows the base."""
    found: dict[str, Any] = {}
    for key in client.scan_iter(match=base.replace("{", "?").replace("}", "?") + "*", count=1000):
        kind = client.type(key).decode()
        found[key.decode().removeprefix(base)] = _content(client, kind, key)
    return found


def _content(client: Any, kind: str, key: bytes) -> Any:
    if kind == "hash":
        return client.hgetall(key)
    if kind == "zset":
        return dict(client.zrange(key, 0, -1, withscores=True))
    if kind == "list":
        return client.lrange(key, 0, -1)
    return client.get(key)


@contextmanager
def followed(world: World) -> Iterator[Running[Trajectory]]:
    """A projection that follows the log as a group member in a thread. What it raises is raised at the end."""
    running = world.running()
    with beside(lambda stop: running.loop.run(running.group, stop), CAUGHT_UP_S):
        yield running


def wait_caught_up(world: World, timeout_s: float = CAUGHT_UP_S) -> None:
    assert wait_until(caught_up(world), timeout_s), f"at {world.reader().as_of()} of {world.ends()}"


def caught_up(world: World) -> Callable[[], bool]:
    keys = world.running().store.keys

    def there() -> bool:
        stored = {p: world.client.hget(keys.checkpoint(p), "position") for p in world.ends()}
        return {p: 0 if at is None else int(at) for p, at in stored.items()} == world.ends()

    return there
