"""Strict replay of a swarm: all its agents run again over their records, each event given out in the one total order.

Nobody is given an event before all that come before it, in whatever record, were given to whom they are for. So the
first divergence is the first of the whole swarm, and it is the same one in every process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from tracklog.consumers.swarm.order import Misfit, Place, misfits, place_of, total_order
from tracklog.consumers.trajectory_replay import Agents, replay_events
from tracklog.infra.blobs import BlobStore
from tracklog.producers.cursor import Cursor
from tracklog.producers.replay import Report
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError
from tracklog.schemas.events import TaskEnded, TaskStarted
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.values import Ending

__all__ = ["SwarmReport", "replay_swarm"]

LIMIT_S: Final = 300.0
"""The longest that a replay of a swarm may take."""
STALL_S: Final = 2.0
"""How long one event of a trajectory waits for another one of the same that it does not ask for."""
Passed = Callable[[Event], None]


class SwarmReport(NamedTuple):
    """`reports` by trajectory; `first`: the id of the one that diverges first, in the total order.

    `not_run`: refused before any agent ran. `misfits`: events that do not fit those of another trajectory.
    """

    events: int
    reports: Mapping[str, Report]
    first: str | None
    not_run: tuple[str, ...]
    misfits: tuple[Misfit, ...]

    @property
    def clean(self) -> bool:
        return self.first is None and not self.misfits


class Conductor:
    """Says whose turn it is. `passed` is called with each event at its turn."""

    def __init__(self, order: Sequence[Event], passed: Passed) -> None:
        self._order = order
        self._passed = passed
        self._index = {place_of(event): index for index, event in enumerate(order)}
        self._at = 0
        self._awaited: set[Place] = set()
        self._over: set[str] = set()
        self._waiting: dict[int, asyncio.Event] = {}
        self._missing: set[str] = set()

    def expect(self, names: Sequence[str]) -> None:
        """These take part: nothing goes on before each has come, or is over."""
        self._missing = set(names)

    def stage(self, name: str, cursor: Cursor) -> Player:
        """For the one that takes part under this name."""
        self._awaited.update((name, place) for place in cursor.open_places)
        self._missing.discard(name)
        self._go_on()
        return Player(name, self)

    def over(self, name: str) -> None:
        """It is given nothing any more."""
        self._over.add(name)
        self._missing.discard(name)
        self._go_on()

    def index_of(self, place: Place) -> int:
        """Behind all of them for a place that no event has."""
        return self._index.get(place, len(self._order))

    async def turn(self, place: Place) -> None:
        """Returns at the turn of this event; sooner, when its own trajectory holds all up by an event that it does not
        ask for: whoever gives the events out then finds that."""
        index = self._index.get(place)
        while index is not None and self._at < index:
            stood = self._at
            try:
                await asyncio.wait_for(self._waiting.setdefault(index, asyncio.Event()).wait(), STALL_S)
            except TimeoutError:
                if self._at == stood and self._order[stood].envelope.trajectory_id == place[0]:
                    return

    def given(self, place: Place) -> None:
        self._awaited.discard(place)
        self._go_on()

    def _go_on(self) -> None:
        while not self._missing and self._at < len(self._order):
            place = place_of(self._order[self._at])
            if place in self._awaited and place[0] not in self._over:
                break
            self._passed(self._order[self._at])
            self._at += 1
        for index in [one for one in self._waiting if one <= self._at]:
            self._waiting.pop(index).set()


class Player:
    """One trajectory's part. See `Stage`."""

    def __init__(self, name: str, conductor: Conductor) -> None:
        self._name = name
        self._conductor = conductor

    async def turn(self, place: int) -> None:
        await self._conductor.turn((self._name, place))

    def given(self, place: int) -> None:
        self._conductor.given((self._name, place))


async def replay_swarm(
    histories: Mapping[str, Sequence[Event]],
    inherited: Mapping[str, Sequence[Event]],
    agents: Agents,
    blobs: BlobStore,
    passed: Passed,
    limit_s: float | None = LIMIT_S,
    redaction: Redaction | None = None,
) -> SwarmReport:
    """`inherited` is what forks among them have from their origins.

    Raises as `replay_events` does, and InputError when it does not come to an end in time.
    """
    order = total_order(histories.values())
    conductor = Conductor(order, passed)
    not_run = tuple(one for one, history in sorted(histories.items()) if not _ran(history))
    names = [one for one in sorted(histories) if one not in not_run]
    conductor.expect(names)

    async def run(name: str) -> Report:
        try:
            staged = partial(conductor.stage, name)
            given = inherited.get(name, ())
            return await replay_events(name, histories[name], given, agents, blobs, staged=staged, redaction=redaction)
        finally:
            conductor.over(name)

    tasks = [asyncio.create_task(run(name), name=name) for name in names]
    try:
        async with asyncio.timeout(limit_s):
            reports = dict(zip(names, await asyncio.gather(*tasks), strict=True))
    except TimeoutError as error:
        stands = ", ".join(task.get_name() for task in tasks if not task.done())
        raise InputError(f"the replay did not come to an end within {limit_s:g} s: {stands}") from error
    finally:
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
    return SwarmReport(len(order), reports, _first(reports, histories, conductor), not_run, tuple(misfits(order)))


def _first(reports: Mapping[str, Report], histories: Mapping[str, Sequence[Event]], conductor: Conductor) -> str | None:
    """The one that diverges at the earliest event; one that goes on past its record does so at its last one."""

    def place(name: str) -> tuple[int, str]:
        found = reports[name].divergence
        seq = None if found is None else found.seq
        last = histories[name][-1].envelope.seq
        return conductor.index_of((name, last if seq is None else seq)), name

    return min((name for name, report in reports.items() if not report.clean), key=place, default=None)


def _ran(history: Sequence[Event]) -> bool:
    """Whether an agent took any part in it."""
    bodies = [event.body for event in history]
    refused = any(isinstance(body, TaskEnded) and body.ending is Ending.REFUSED for body in bodies)
    return not refused and any(isinstance(body, TaskStarted) for body in bodies)
