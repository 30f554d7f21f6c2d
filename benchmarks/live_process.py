"""One side of the live benchmark, as a process of its own: folds, looks at Redis, or watches.

Who looks or watches prints, when it has seen all, one JSON list of [partition, offset, microseconds since 1970].
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from collections.abc import Iterator

from tracklog.consumers.watching import watch
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.open import open_log
from tracklog.infra.redis_client import connect
from tracklog.infra.redis_script import ask
from tracklog.infra.settings_sections import Settings
from tracklog.processors.running import processes, store_of
from tracklog.processors.trajectories import Trajectories

LOOK_S = 0.002
"""Between two looks at Redis: what is measured may be that much too late."""
GIVE_UP_S = 150.0

Seen = tuple[int, int, int]


def fold(settings: Settings) -> None:
    """As `tracklog process trajectories`, until it is told to stop."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    log, client = open_log(settings.log.url), connect(settings.redis.url.get_secret_value(), timeout_s=10.0)
    work = processes([], log, client, settings, clock=SystemClock(), entropy=SystemEntropy(), builtin=True)
    print("ready", flush=True)
    work.loop.run(work.group, stop)
    client.close()
    log.close()


def look(settings: Settings, count: int) -> Iterator[Seen]:
    """When each record was first covered by a position in Redis: state and position are written in one step."""
    log, client = open_log(settings.log.url), connect(settings.redis.url.get_secret_value(), timeout_s=10.0)
    info, clock, pause = log.describe(settings.topic_names.events), SystemClock(), threading.Event()
    keys = store_of(Trajectories(), info, client, settings, SystemEntropy()).keys
    partitions = range(info.spec.partitions)
    commands = [("HGET", keys.checkpoint(partition), "position") for partition in partitions]
    at = dict.fromkeys(partitions, 0)
    print("ready", flush=True)
    while sum(at.values()) < count:
        answers = ask(client, commands)
        now_us = clock.now_us()
        for partition, answer in enumerate(answers):
            position = int(answer or 0)
            yield from ((partition, offset, now_us) for offset in range(at[partition], position))
            at[partition] = position
        pause.wait(LOOK_S)
    client.close()
    log.close()


async def follow(settings: Settings, count: int) -> list[Seen]:
    log, clock = open_log(settings.log.url), SystemClock()
    found = list[Seen]()
    print("ready", flush=True)
    async with asyncio.timeout(GIVE_UP_S):
        async for one in watch(log, settings.topic_names.events, start="beginning"):
            found.append((one.record.partition, one.record.offset, clock.now_us()))
            if len(found) == count:
                break
    log.close()
    return found


def main(role: str, log_url: str, redis_url: str, prefix: str, count: int) -> None:
    collect_rarely()
    settings = Settings.model_validate({"prefix": prefix, "log": {"url": log_url}, "redis": {"url": redis_url}})
    if role == "fold":
        fold(settings)
        return
    seen = list(look(settings, count)) if role == "look" else asyncio.run(follow(settings, count))
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
