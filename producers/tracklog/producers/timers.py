"""Timers: by the agent's own turns, due with the context of a turn; by the clock, waited for.

What is due by the clock goes off through the inbox, once, whoever runs the trajectory then: the router posts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tracklog.producers.cursor import describe
from tracklog.producers.divergence import Divergence
from tracklog.producers.notebook import Notebook
from tracklog.producers.record import Record
from tracklog.producers.sameness import same_timer
from tracklog.schemas import events as ev
from tracklog.schemas.errors import SessionMisused, TimerAwaited

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

    async def sleep(self, until_us: Callable[[], int], name: str, wait_s: float) -> None:
        """Returns when the timer went off. Raises TimerAwaited when that takes longer than `wait_s`."""
        record = self._record
        asked = f"timer {name!r} by the clock"
        with record.strand.ordered(asked):
            found = await record.next_ordered(ev.TimerSet, asked)
            if found is None:
                record.check_live(asked)
                await record.write(ev.TimerSet(timer_id=name, due_at=until_us()))
            elif found.body.timer_id != name or found.body.due_at is None:
                raise record.cursor.broken(Divergence(found.turn, found.seq, describe(found.body), asked))
            if await record.woken(name):
                return
            await self._wait(name, wait_s)

    async def _wait(self, name: str, wait_s: float) -> None:
        taking = self._record.taking
        self._record.check_live(f"that timer {name!r} goes off")

        def ready() -> bool:
            self._record.check_live(f"that timer {name!r} goes off")
            return taking is not None and taking.woken[name] > 0

        if taking is not None:
            await taking.look()
            if await taking.until(ready, wait_s):
                taking.woken[name] -= 1
                return
        raise TimerAwaited(
            f"trajectory {self._record.trajectory_id!r} sleeps until timer {name!r} goes off",
            hint="does a router run (tracklog route)? Open its session later; workers do so",
        )

    async def fire(self) -> None:
        """Those that are due with the next context."""
        self.fired = tuple(sorted(name for name, due in self._due.items() if due <= self._record.turn + 1))
        for name in self.fired:
            del self._due[name]
            await self._record.ordered(ev.TimerFired(timer_id=name), f"timer {name!r}", check=same_timer)
