"""Who of a swarm waits for whom, and which of them can never go on by themselves (DESIGN §9). Pure.

Whoever waits for time, for a person, a dispatcher or an outsider can go on, and so can who runs. Who waits for an agent
can when that one can, or when its word is on the way; who waits for anybody, when any other can. The rest is stuck:

    deadlock    they wait for each other, in a circle
    orphan      it waits for one that has ended, or for anybody where all others have
    held up     it waits for one of those

A wait with a deadline ends by itself, so none of these has one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from tracklog.schemas.lifecycle import STOPPED, CallStatus, Parked
from tracklog.schemas.spawn import FROM
from tracklog.schemas.state import State

__all__ = ["ANYBODY", "Swarm", "Wait", "swarm_of"]

ANYBODY: Final = "*"
"""Whom a run waits for that takes a message from whoever sends one."""


class Wait(NamedTuple):
    """What a run waits for. `whom`: the trajectory, ANYBODY, or "" for no agent. `due_us`: when it ends by itself."""

    kind: str
    whom: str = ""
    what: str = ""
    due_us: int | None = None


class Swarm(NamedTuple):
    """`deadlocks` are circles, each from its first member by name on; `orphans` and `held_up` single members."""

    name: str
    members: Mapping[str, State]
    waits: Mapping[str, tuple[Wait, ...]]
    deadlocks: tuple[tuple[str, ...], ...] = ()
    orphans: tuple[str, ...] = ()
    held_up: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        return not self.deadlocks and not self.orphans


def swarm_of(name: str, states: Mapping[str, State], mail: Collection[str] = ()) -> Swarm:
    """`mail`: members for whom something lies in their inbox that they have not taken."""
    members = dict(sorted(states.items()))
    waits = {one: tuple(_waits(state)) for one, state in members.items()}
    stuck = _stuck(members, waits, frozenset(mail))
    edges = {one: _edges(one, members, waits, stuck) for one in stuck}
    circles = tuple(sorted(one for one in _circles(edges) if len(one) > 1 or one[0] in edges[one[0]]))
    in_circle = {one for circle in circles for one in circle}
    orphans = tuple(one for one in stuck if one not in in_circle and not _others(one, edges, stuck))
    held_up = tuple(one for one in stuck if one not in in_circle and one not in orphans)
    return Swarm(name, members, waits, circles, orphans, held_up)


def _waits(state: State) -> Iterable[Wait]:
    if state.ended or not state.parked:
        return
    parked = state.parked
    if parked == Parked.MESSAGE:
        yield Wait("message", state.waits_for or ANYBODY)
    elif parked == Parked.CHILD:
        yield Wait("child", state.waits_for)
    elif parked == Parked.TIMER:
        due = [(timer.due_at, name) for name, timer in state.timers.items() if timer.due_at is not None]
        yield from (Wait("timer", what=name, due_us=at) for at, name in sorted(due))
    elif parked == Parked.APPROVAL:
        for call_id, call in sorted(state.pending_approvals.items()):
            yield Wait("approval", what=call_id, due_us=None if call.request is None else call.request.expires_at)
    elif parked in (Parked.PERSON, Parked.OUTCOME, Parked.DOUBT):
        kinds = {CallStatus.ESCALATED: "person", CallStatus.IN_DOUBT: "doubt"}
        for call_id, call in sorted(state.open_intents.items()):
            yield Wait(kinds.get(call.status, "outcome"), what=call_id)
    elif parked in STOPPED:
        yield Wait("person", what=f"stopped: {parked}")


def _stuck(members: Mapping[str, State], waits: Mapping[str, tuple[Wait, ...]], mail: Collection[str]) -> list[str]:
    """Those that nobody who can go on can help, in order of their names."""
    asking = {one: wait for one in members if (wait := _of_agent(waits[one])) is not None and one not in mail}
    left = [one for one in asking if not _answered(members, one, asking[one])]
    free = {one for one, state in members.items() if one not in left and not state.ended}
    grew = True
    while grew:
        helped = [one for one in left if _helped(one, asking[one], free)]
        free.update(helped)
        left = [one for one in left if one not in free]
        grew = bool(helped)
    return left


def _of_agent(waits: tuple[Wait, ...]) -> Wait | None:
    return next((wait for wait in waits if wait.whom), None)


def _answered(members: Mapping[str, State], waiter: str, wait: Wait) -> bool:
    """Whether what it waits for is on the way, or comes from outside."""
    state = members[waiter]
    outside = len(members) == 1 if wait.whom == ANYBODY else wait.whom not in members
    if outside:
        return True
    if wait.kind == "child" and (members[wait.whom].ended or wait.whom not in state.children):
        return wait.whom not in state.children or _hears_of(members[wait.whom], waiter)
    senders = members if wait.whom == ANYBODY else [wait.whom]
    return any(
        members[one].sent.get(waiter, -1) > state.inbox.get(f"{FROM}{one}", -1) for one in senders if one != waiter
    )


def _hears_of(child: State, parent: str) -> bool:
    """Whether the end of this run is told to that one: it is its child, and not another run of the child's name."""
    return child.task is not None and child.task.parent is not None and child.task.parent.trajectory_id == parent


def _helped(waiter: str, wait: Wait, free: Collection[str]) -> bool:
    return bool(free) if wait.whom == ANYBODY else wait.whom in free and wait.whom != waiter


def _edges(
    waiter: str, members: Mapping[str, State], waits: Mapping[str, tuple[Wait, ...]], stuck: list[str]
) -> tuple[str, ...]:
    """Whom of the stuck ones it waits for."""
    wait = _of_agent(waits[waiter])
    if wait is None or (wait.whom != ANYBODY and wait.whom not in stuck):
        return ()
    return (wait.whom,)


def _others(one: str, edges: Mapping[str, tuple[str, ...]], stuck: list[str]) -> bool:
    return bool(edges[one]) and (edges[one] != (ANYBODY,) or len(stuck) > 1)


def _circles(edges: Mapping[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The groups whose members all wait for each other, over others or not (Tarjan's components), each in order of its
    names. ANYBODY is everybody's neighbour, so a thousand who wait for anybody cost a thousand edges."""
    graph = {**edges, ANYBODY: tuple(edges)}
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    path, found = list[str](), list[tuple[str, ...]]()
    for root in edges:
        work = [] if root in number else [(root, iter(graph[root]))]
        while work:
            one, ahead = work[-1]
            if one not in number:
                number[one] = low[one] = len(number)
                path.append(one)
            new = next((other for other in ahead if other not in number), None)
            if new is not None:
                work.append((new, iter(graph[new])))
                continue
            work.pop()
            low[one] = min([low[one], *(low[other] for other in graph[one] if other in path)])
            if low[one] == number[one]:
                group = path[path.index(one) :]
                del path[path.index(one) :]
                found.append(tuple(sorted(other for other in group if other != ANYBODY)))
    return [group for group in found if group]
