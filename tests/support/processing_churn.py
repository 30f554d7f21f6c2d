"""Processes that fold come and go all the time, while runs are appended: what is stored counts each event once.

Judged by the counters of the processors, by what a fresh fold in memory gives, and by nothing else.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, NamedTuple

from tests.property.writers import event_of
from tests.support.beside import beside
from tests.support.chains import append_all, interleaved
from tests.support.processing_member import settings_of
from tests.support.projecting import some_runs
from tests.support.projecting_process import member_environment
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.open import open_log
from tracklog.infra.redis_client import connect
from tracklog.infra.stack.process import wait_until
from tracklog.processors.comparing import compare
from tracklog.processors.loading import BUILTIN
from tracklog.processors.running import store_of
from tracklog.schemas.errors import LogUnavailable

STAYING = 2
MEMBERS_MAX = 4
RUNS_AT_ONCE = 4
APPEND_EVERY_S = 0.1
CAUGHT_UP_S = 90.0
ENDED = (0, -9, -15)
"""Told to end, also before it had begun; killed."""


class Churned(NamedTuple):
    """`moves`: members that came or left; `killed` of them. `gave_up`: those that ended because no broker answered, and
    were replaced. `counted`: events by the counters of `activity`."""

    events: int
    counted: int
    moves: int
    killed: int
    gave_up: int
    replies: int
    spent: int
    wrong: list[str]


class ProcessingChurn:
    """Members that come and go on one topic. `protocol`: classic or consumer, empty for a log that has none."""

    def __init__(
        self, log_url: str, redis_url: str, prefix: str, protocol: str, folder: Path, *, seed: int, replicas: int = 1
    ) -> None:
        self._given = (log_url, redis_url, prefix, protocol)
        self._settings = settings_of(prefix, replicas)
        self._log, self._client = open_log(log_url), connect(redis_url, timeout_s=5)
        self._log.create(self._settings.topic_specs())
        self._info = self._log.describe(self._settings.topic_names.events)
        self._drawn = random.Random(seed)
        self._said = (folder / f"{prefix}.said").open("w+")
        self._staying: list[subprocess.Popen[str]] = []
        self._leaving: list[subprocess.Popen[str]] = []
        self._runs = self._moves = self._killed = self._gave_up = 0
        self._may_give_up = replicas > 1
        self._clock = SystemClock()

    def run(self, seconds: float, every_s: float) -> None:
        """Raises AssertionError for a member that ended badly, or when they do not catch up."""
        try:
            for _ in range(STAYING):
                self._staying.append(_member(self._given, self._said))
            with beside(self._append, CAUGHT_UP_S):
                until_s = self._clock.monotonic_s() + seconds
                while self._clock.monotonic_s() < until_s:
                    next_s = self._clock.monotonic_s() + every_s
                    self._move()
                    wait_until(lambda at=next_s: self._clock.monotonic_s() >= at, every_s * 2)  # type: ignore[misc]
                    self._look_after()
            assert wait_until(self._caught_up, CAUGHT_UP_S), f"{self._positions()} of {self._ends()}\n{self._tail()}"
        finally:
            for process in (*self._staying, *self._leaving):
                process.terminate()
            for process in (*self._staying, *self._leaving):
                process.wait(CAUGHT_UP_S)

    def close(self) -> None:
        self._said.close()
        self._log.close()
        self._client.close()

    def _append(self, stop: threading.Event) -> None:
        while not stop.wait(APPEND_EVERY_S):
            runs = some_runs(RUNS_AT_ONCE, first=self._runs)
            append_all(self._log, self._settings.topic_names.events, interleaved(runs))
            self._runs += RUNS_AT_ONCE

    def _move(self) -> None:
        """One more, or one less: told to end, and every third killed. Also one that was there from the start."""
        self._moves += 1
        if len(self._staying) <= STAYING or (len(self._staying) < MEMBERS_MAX and self._drawn.random() < 0.5):
            self._staying.append(_member(self._given, self._said))
            return
        gone = self._staying.pop(self._drawn.randrange(len(self._staying)))
        if self._moves % 3 == 0:
            self._killed += 1
            gone.kill()
        else:
            gone.terminate()
        self._leaving.append(gone)

    def _look_after(self) -> None:
        for process in [one for one in self._staying if one.poll() is not None]:
            left = self._may_give_up and process.returncode == LogUnavailable.exit_code
            assert left, f"a member ended with {process.returncode}:\n{self._tail()}"
            self._gave_up += 1
            self._staying.remove(process)
            self._staying.append(_member(self._given, self._said))
        for process in [one for one in self._leaving if one.poll() is not None]:
            assert process.returncode in ENDED or self._may_give_up, (
                f"a member ended with {process.returncode}:\n{self._tail()}"
            )
            self._leaving.remove(process)

    def _ends(self) -> dict[int, int]:
        topic = self._settings.topic_names.events
        return {p: self._log.bounds(topic, p).end for p in range(self._log.partition_count(topic))}

    def _positions(self) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for kind in BUILTIN:
            store = self._store(kind())
            stored = {p: store.checkpoint(p) for p in self._ends()}
            found[kind.name] = {p: 0 if one is None else one.position for p, one in stored.items()}
        return found

    def _caught_up(self) -> bool:
        ends = self._ends()
        return all(positions == ends for positions in self._positions().values())

    def _store(self, processor: Any) -> Any:
        return store_of(processor, self._info, self._client, self._settings, SystemEntropy())

    def judged(self) -> Churned:
        """What came of it, on a log that is whole."""
        wrong = []
        for kind in BUILTIN:
            found = compare(
                kind(),
                self._store(kind()),
                self._log,
                self._settings,
                partitions=len(self._ends()),
                clock=self._clock,
            )
            if found.difference is not None:
                wrong.append(f"{kind.name}: {found.difference}")
        runs = some_runs(self._runs)
        replies = sum(event_of(made).name == "ModelReplied" for run in runs for made in run.records)
        events = sum(len(run.records) for run in runs)
        counted, spent = self._sum("activity", "minute:", ""), self._sum("spend", "meter:", "|calls")
        if (counted, spent) != (events, replies):
            wrong.append(f"{counted} of {events} events and {spent} of {replies} replies are counted")
        return Churned(events, counted, self._moves, self._killed, self._gave_up, replies, spent, wrong)

    def _sum(self, name: str, keys: str, field: str) -> int:
        total = 0
        client: Any = self._client
        for key in client.scan_iter(match=f"{self._settings.prefix}:{{*}}:{name}:v1:{keys}*", count=1000):
            total += sum(int(n) for one, n in client.hgetall(key).items() if one.decode().endswith(field))
        return total

    def _tail(self) -> str:
        self._said.seek(0)
        return self._said.read()[-4000:]


def _member(given: tuple[str, str, str, str], said: IO[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.processing_member", *given]
    return subprocess.Popen(command, env=member_environment(), stdout=said, stderr=said, text=True)
