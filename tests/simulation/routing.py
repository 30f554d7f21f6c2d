"""The router of the simulation: the real one, over an agenda that it folds itself from the log's beginning.

Redis is played by sorted sets in memory, which are gone with their process: what was said is then said again.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final, cast

from tests.simulation.log import SimLog, Store
from tests.simulation.loop import Process
from tests.simulation.truth import TOPICS
from tracklog.consumers.routing.router import Router
from tracklog.infra.log.port import Log, Record
from tracklog.processors.agenda import DUE, Agenda, TrajectoryAgenda
from tracklog.processors.processor import Seen
from tracklog.processors.writes import Rank, Unrank
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import LogError

LOOK_S: Final = 0.3
AWAY_S: Final = 1.0


class Sets:
    """As much of a Redis client as the router asks for."""

    def __init__(self) -> None:
        self.sets: dict[str, dict[bytes, float]] = {}
        self.connection_pool = SimpleNamespace(connection_kwargs={"host": "sim", "port": 0})

    def ranked(self, key: str) -> list[tuple[bytes, float]]:
        return sorted(self.sets.get(key, {}).items(), key=lambda one: (one[1], one[0]))

    @contextmanager
    def pipeline(self, transaction: bool) -> Any:
        answers: list[Any] = []
        yield SimpleNamespace(
            execute_command=lambda *command: answers.append(self._answer(*command)), execute=lambda: answers
        )

    def _answer(self, command: str, key: str, *given: Any) -> Any:
        if command == "ZRANGEBYSCORE":
            return [member for member, score in self.ranked(key) if score <= given[1]][: given[4]]
        if command == "ZRANGE":
            return [member for member, _ in self.ranked(key)][given[0] : given[1] + 1]
        assert command == "ZREM"
        return [self.sets.get(key, {}).pop(member, None) for member in given]


class Running:
    """The agenda as the router sees it."""

    def __init__(self) -> None:
        self.client = Sets()
        self.loop = SimpleNamespace(positions={0: 0})
        self.store = SimpleNamespace(keys=SimpleNamespace(key=lambda partition, name: name))
        self._agenda = Agenda()
        self._states: dict[str, TrajectoryAgenda] = {}

    def fold(self, record: Record) -> None:
        event = decode_event(record.key, record.value, record.headers)
        name = event.envelope.trajectory_id
        before = self._states.get(name, self._agenda.start(name))
        after = self._states[name] = self._agenda.apply(before, Seen(event, record))
        for write in self._agenda.writes(before, after, [record]):
            if isinstance(write, Rank):
                for key in write.keys:
                    self.client.sets.setdefault(key, {})[write.member.encode()] = write.score
            elif isinstance(write, Unrank):
                for key in write.keys:
                    self.client.sets.get(key, {}).pop(write.member.encode(), None)

    def due_s(self, now_us: int) -> float | None:
        """In how many seconds something is due that is not yet."""
        later = [score - now_us / 1000 for _, score in self.client.ranked(DUE) if score > now_us / 1000]
        return min(later) / 1000 if later else None


async def route(process: Process, store: Store) -> None:
    """Looks when events have come and when something is due; a real one looks all the time."""
    running = Running()
    router = Router(cast(Log, SimLog(store)), TOPICS, cast(Any, running.client), cast(Any, running), clock=process)
    at = 0
    while True:
        records = store.of(TOPICS.events)[at:]
        at += len(records)
        for record in records:
            running.fold(record)
        try:
            await router.look()
        except LogError:
            await asyncio.sleep(AWAY_S)
            continue
        waits = [asyncio.ensure_future(store.news(TOPICS.events, at))]
        await asyncio.wait(waits, timeout=running.due_s(process.now_us()))
        waits[0].cancel()
        await asyncio.sleep(process.loop.chance.uniform(0.0, LOOK_S))
