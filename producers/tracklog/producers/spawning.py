"""Child runs of a session: stated in the record, begun by the router, done by workers (DESIGN §9).

    the parent     writes a MessageSent that states the child, and goes on
    the router     submits the child, once: its id comes from the parent's and its number
    a worker       runs it as any other task
    the router     brings its end into the parent's inbox, once
    the parent     takes that; one that asks before it has come leaves with ChildAwaited and holds no task

A parent that is cancelled or ends cancels the children it has not heard of; those theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tracklog.producers.cursor import describe
from tracklog.producers.divergence import Divergence
from tracklog.producers.lanes import Lanes
from tracklog.producers.notebook import Notebook
from tracklog.producers.record import TEXT, Record
from tracklog.producers.setup import Setup
from tracklog.schemas import events as ev
from tracklog.schemas import limits
from tracklog.schemas.errors import ChildAwaited, SessionMisused, TaskFailed
from tracklog.schemas.lifecycle import EXT_LANE
from tracklog.schemas.spawn import (
    EXT_BEHALF,
    EXT_BUDGETS,
    EXT_CHILD,
    EXT_DEPTH,
    EXT_LABELS,
    EXT_SWARM,
    EXT_WITHHELD,
    depth_of,
)
from tracklog.schemas.state import Child
from tracklog.schemas.values import NO_BUDGETS, Budgets, Ending

__all__ = ["ChildResult", "Children"]

SAID: Final = (EXT_CHILD, EXT_LABELS, EXT_BUDGETS)
"""What must be the same when a child is asked for again, beside its task."""


@dataclass(frozen=True, slots=True)
class ChildResult:
    """How a child run ended. `output` is the result of a completed one, `reason` says why another one ended."""

    trajectory_id: str
    ending: Ending
    output: Any = None
    reason: str = ""

    @property
    def value(self) -> Any:
        """The output of a completed one. Raises TaskFailed for every other ending."""
        if self.ending is not Ending.COMPLETED:
            raise TaskFailed(
                f"child run {self.trajectory_id!r} ended as {self.ending.value}: {self.reason or 'no reason given'}",
                hint=f"tracklog show {self.trajectory_id}",
            )
        return self.output


class Children:
    """Of one session. `sandboxed`: it is a fork beside its origin, which has no effects."""

    def __init__(self, setup: Setup, record: Record, notebook: Notebook, *, sandboxed: bool) -> None:
        self._setup = setup
        self._record: Final = record
        self._notebook = notebook
        self._sandboxed = sandboxed
        self._lanes = Lanes()
        self._count = 0
        self._own: set[str] = set()
        self._inherited: set[str] = set()

    def recall(self, rows: Iterable[Any]) -> None:
        """Takes in the children that were spawned before a checkpoint."""
        for (child_id,) in rows:
            self._count += 1
            self._own.add(child_id)

    def recall_open(self, children: Mapping[str, Child]) -> None:
        """Takes in which lanes the open children of a record have."""
        for child_id, child in children.items():
            self._lanes.recall(child_id, {EXT_LANE: str(child.lane)})

    @property
    def withheld(self) -> Mapping[str, str] | None:
        """The ext of what this run says to others: of a fork beside its origin nobody is told."""
        return {EXT_WITHHELD: "fork"} if self._sandboxed else None

    async def spawn(
        self, agent: str, task: str, *, labels: Mapping[str, str] | None = None, budgets: Budgets = NO_BUDGETS
    ) -> str:
        """The child's id; the statement is under way when this returns. Raises SessionMisused over a limit."""
        record, asked = self._record, f"a child run of agent {agent!r}"
        with record.strand.ordered(asked):
            body = ev.MessageSent(peer=self._next_id(), message=await record.body(task, TEXT))
            said = self._said(agent, labels, budgets)
            found = await record.next_ordered(ev.MessageSent, asked)
            if found is None:
                record.check_live(asked)
                self._check(body.peer)
                await record.write(body, ext={**said, **self._lanes.ext(body.peer), **self._passed_on})
            else:
                recorded = {name: found.ext[name] for name in SAID if name in found.ext}
                if recorded != said or found.body.message.hash != body.message.hash:
                    was = Divergence(found.turn, found.seq, describe(found.body), f"{asked} (another child)")
                    raise record.cursor.broken(was)
                body = found.body
                if found.seq < 0:
                    self._inherited.add(body.peer)
        self._count += 1
        self._own.add(body.peer)
        self._notebook.note("child", body.peer)
        return body.peer

    async def result(self, child_id: str, wait_s: float) -> ChildResult:
        """How it ended, once that has come. Raises ChildAwaited, SessionMisused for what is no child of this run."""
        record, asked = self._record, f"the end of child run {child_id!r}"
        if child_id not in self._own:
            raise SessionMisused(f"{asked} was asked for, and this run has not spawned it")
        with record.strand.ordered(asked):
            found = await record.child_ended(child_id)
            if found is not None:
                seq, body, ending = found[0].seq, found[0].body, found[1]
            else:
                record.check_live(asked)
                seq, body, ending = await self._live(child_id, asked, wait_s)
            if record.strand.last is None or seq > record.strand.last:
                record.strand.saw(seq)
        self._lanes.free(child_id)
        text = await record.whole(body.message)
        if ending is not Ending.COMPLETED:
            return ChildResult(child_id, ending, reason=text)
        return ChildResult(child_id, ending, output=orjson.loads(text))

    async def _live(self, child_id: str, asked: str, wait_s: float) -> tuple[int, ev.MessageReceived, Ending]:
        taking = self._record.taking
        if child_id in self._inherited:
            raise SessionMisused(
                f"{asked} is told to the run that this one was forked from", hint="fork before it was spawned"
            )

        def ready() -> bool:
            self._record.check_live(asked)
            return taking is not None and child_id in taking.children

        if taking is not None:
            await taking.look()
            if await taking.until(ready, wait_s):
                found = taking.children.pop(child_id)
                assert found.ended is not None
                return found.seq, found.body, found.ended
        error = ChildAwaited(
            f"trajectory {self._record.trajectory_id!r} waits for its child run {child_id!r}",
            hint="does a router run, and a worker that has its agent? Open its session later; workers do so",
        )
        error.waits_for = child_id
        raise error

    @property
    def _depth(self) -> int:
        start, child_of = self._record.cursor.start, self._setup.child_of
        return depth_of(start.ext) if start is not None else 0 if child_of is None else child_of.depth

    @property
    def _passed_on(self) -> dict[str, str]:
        """What a child has from its parent."""
        said = self._record.cursor.start.body if self._record.cursor.start is not None else self._setup
        swarm = said.swarm if said.swarm is not None else self._record.trajectory_id
        ext = {EXT_DEPTH: str(self._depth + 1), EXT_SWARM: swarm}
        return ext if said.on_behalf_of is None else {**ext, EXT_BEHALF: said.on_behalf_of}

    def _next_id(self) -> str:
        return f"{self._record.trajectory_id}.child-{self._count + 1}"

    def _check(self, child_id: str) -> None:
        own, setup = self._record.trajectory_id, self._setup
        if self._sandboxed:
            raise SessionMisused(f"{own!r} is a fork beside its origin: it spawns no runs", hint="fork after the spawn")
        if self._count >= setup.children_max:
            raise SessionMisused(
                f"trajectory {own!r} has spawned {self._count} child runs",
                hint="Setup.children_max, worker.children_max",
            )
        if self._depth >= setup.depth_max:
            raise SessionMisused(
                f"trajectory {own!r} is {self._depth} runs deep and spawns no further one",
                hint="Setup.depth_max, worker.depth_max",
            )
        if len(child_id.encode()) > limits.TRAJECTORY_ID_BYTES_MAX:
            raise SessionMisused(
                f"the id of a child run of {own!r} would be longer than {limits.TRAJECTORY_ID_BYTES_MAX} bytes",
                hint="begin the parent under a shorter id",
            )

    def _said(self, agent: str, labels: Mapping[str, str] | None, budgets: Budgets) -> dict[str, str]:
        ext = {EXT_CHILD: agent}
        if labels:
            ext[EXT_LABELS] = orjson.dumps(dict(labels), option=orjson.OPT_SORT_KEYS).decode()
        if budgets != NO_BUDGETS:
            ext[EXT_BUDGETS] = budgets.model_dump_json(exclude_none=True)
        return ext
