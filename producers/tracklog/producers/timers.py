"""Timers by the agent's own turns: set by its program, due with the context of a turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tracklog.producers.notebook import Notebook
from tracklog.producers.record import Record
from tracklog.producers.sameness import same_timer
from tracklog.schemas import events as ev
from tracklog.schemas.errors import SessionMisused

__all__ = ["Timers"]


class Timers:
    """Of one session. `fired` are those that are due with the last context."""

    def __init__(self, record: Record, notebook: Notebook) -> None:
        self.fired: tuple[str, ...] = ()
        self._record = record
        self._notebook = notebook
        self._due: dict[str, int] = {}

    def recall(self, rows: Iterable[Sequence[Any]], turn: int) -> None:
        """Takes in the timers that were set before a checkpoint after this turn: (name, due turn) each."""
        self._due = {name: due for name, due in rows if due > turn}

    async def set(self, turns: int, name: str) -> None:
        """Raises SessionMisused for no turns, and for the name of a timer that is open."""
        if turns < 1 or name in self._due:
            raise SessionMisused(
                f"a timer {name!r} over {turns} turns", hint="1 or more, under a name that no open timer has"
            )
        due = self._record.turn + turns
        with self._record.strand.ordered("a timer"):
            body = ev.TimerSet(timer_id=name, due_turn=due)
            await self._record.ordered(body, f"timer {name!r}", check=same_timer)
        self._due[name] = due
        self._notebook.note("timer", name, due)

    async def fire(self) -> None:
        """Those that are due with the next context."""
        self.fired = tuple(sorted(name for name, due in self._due.items() if due <= self._record.turn + 1))
        for name in self.fired:
            del self._due[name]
            await self._record.ordered(ev.TimerFired(timer_id=name), f"timer {name!r}", check=same_timer)
