"""One side of the live benchmark, as a process of its own: folds, looks at Redis, or watches.

Each prints, at its end, one JSON object: what happened to records, and for each of them a list of
[partition, offset, microseconds since 1970].
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

from tracklog.consumers.watching import watch
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import GroupListener, GroupMember, Record
from tracklog.infra.redis_client import connect
from tracklog.infra.redis_script import ask
from tracklog.infra.settings_sections import Settings
from tracklog.processors.running import processes, store_of
from tracklog.processors.trajectories import Trajectories

LOOK_S = 0.002
"""Between two looks at Redis: what is measured may be that much too late."""
GIVE_UP_S = 150.0

Seen = list[tuple[int, int, int]]


class Noting:
    """A reader or a member that notes when it gave records out."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._clock = SystemClock()
        self.seen = Seen()

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        records: list[Record] = self._inner.poll(max_records, timeout_s)
        now_us = self._clock.now_us()
        self.seen += [(one.partition, one.offset, now_us) for one in records]
        return records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class NotingLog:
    """A log whose reader notes."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.reading: Noting | None = None

    def reader(self, topic: str, starts: Mapping[int, int], *, follows: bool = False) -> Noting:
        self.reading = Noting(self._inner.reader(topic, starts, follows=follows))
        return self.reading

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def fold(settings: Settings) -> dict[str, Seen]:
    """As `tracklog process trajectories`, until it is told to stop."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    log, client = open_log(settings.log.url), connect(settings.redis.url.get_secret_value(), timeout_s=10.0)
    work = processes([], log, client, settings, clock=SystemClock(), entropy=SystemEntropy(), builtin=True)
    members: list[Noting] = []

    def join(group: str, topic: str, listener: GroupListener) -> GroupMember:
        members.append(Noting(log.group(group, topic, listener)))
        return members[-1]

    print("ready", flush=True)
    work.loop.run(work.group, stop, join)
    print(work.bundle.counts, file=sys.stderr)
    client.close()
    log.close()
    return {"read by the processor": members[0].seen}


def look(settings: Settings, count: int) -> dict[str, Seen]:
    """When each record was first covered by a position in Redis: state and position are written in one step."""
    log, client = open_log(settings.log.url), connect(settings.redis.url.get_secret_value(), timeout_s=10.0)
    info, clock, pause = log.describe(settings.topic_names.events), SystemClock(), threading.Event()
    keys = store_of(Trajectories(), info, client, settings, SystemEntropy()).keys
    partitions = range(info.spec.partitions)
    commands = [("HGET", keys.checkpoint(partition), "position") for partition in partitions]
    at, seen = dict.fromkeys(partitions, 0), Seen()
    print("ready", flush=True)
    while sum(at.values()) < count:
        answers = ask(client, commands)
        now_us = clock.now_us()
        for partition, answer in enumerate(answers):
            position = int(answer or 0)
            seen += [(partition, offset, now_us) for offset in range(at[partition], position)]
            at[partition] = position
        pause.wait(LOOK_S)
    client.close()
    log.close()
    return {"visible in Redis": seen}


async def follow(settings: Settings, count: int) -> dict[str, Seen]:
    log, clock = NotingLog(open_log(settings.log.url)), SystemClock()
    found = Seen()
    print("ready", flush=True)
    async with asyncio.timeout(GIVE_UP_S):
        async for one in watch(log, settings.topic_names.events, start="beginning"):
            found.append((one.record.partition, one.record.offset, clock.now_us()))
            if len(found) == count:
                break
    log.close()
    assert log.reading is not None
    return {"read by the watcher": log.reading.seen, "at a `watch` client": found}


def main(role: str, log_url: str, redis_url: str, prefix: str, count: int) -> None:
    collect_rarely()
    settings = Settings.model_validate({"prefix": prefix, "log": {"url": log_url}, "redis": {"url": redis_url}})
    if role == "fold":
        said = fold(settings)
    elif role == "look":
        said = look(settings, count)
    else:
        said = asyncio.run(follow(settings, count))
    took = os.times()
    print(json.dumps({**said, "cpu": f"{role}: {took.user + took.system:.1f} s of CPU"}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
