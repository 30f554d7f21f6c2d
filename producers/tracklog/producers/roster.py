"""What a worker knows of the trajectories in its partitions, and which of them it may go on with. Pure.

A trajectory may be gone on with when nobody has it and

    there is nothing of it yet                 a Submit has come
    its last owner died, or left, or moved it  at once (as poison when it killed too many owners)
    it waits for somebody                      something has come that it did not have when it was last opened
    it waits for time to pass                  at that time
    it is stopped                              a Retry or a Cancel has come
    it has ended                               something has come that must be answered: it is noted, nothing runs
    its log holds a fork or a gap              never: nothing that anybody writes would be accepted

Only trajectories of the driver `worker` are kept. A waiting one costs about a kilobyte: neither its head nor its
context is kept, they are read again when it goes on.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Set
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from tracklog.infra.log.port import Record
from tracklog.producers.mailbox import Incoming, known_incoming
from tracklog.producers.spans import Places
from tracklog.schemas.codec import InboxRecord
from tracklog.schemas.lifecycle import STOPPED, Parked
from tracklog.schemas.state import State
from tracklog.schemas.values import Driver, Place

__all__ = ["NOTHING", "Arrival", "Kept", "Known", "Now", "Roster", "Standings", "Work", "known_of"]

WAKES_STOPPED: Final = ("Retry", "Cancel")
AT_ONCE: Final = (Parked.LEFT, Parked.MOVED, Parked.DOUBT)
_NONE: Final[Mapping[str, int]] = {}


class Work(StrEnum):
    """What is to be done with a trajectory. NOTE: only what came is taken, the agent does not run."""

    RUN = "run"
    POISON = "poison"
    NOTE = "note"


class Known(NamedTuple):
    """Of one trajectory, as its events say. `due_us`: when what is in doubt can be settled, 0 for any time; `faulty`:
    nobody may go on with it."""

    ended: bool = False
    started: bool = False
    owned: bool = False
    agent: str = ""
    parked: str = ""
    tries: int = 0
    due_us: int = 0
    taken: Mapping[str, int] = _NONE
    faulty: bool = False


NOTHING: Final = Known()


class Standings(NamedTuple):
    """Of one events partition, as it was read up to `end`: what is known of the workers' trajectories, the ids of
    everybody else's, and where the records of each of the workers' lie."""

    known: Mapping[str, Known]
    foreign: Set[str]
    places: Mapping[str, Places]
    end: int


class Now(NamedTuple):
    """What time it is: of a wall clock, which may be set ahead or back, and of one that only goes on."""

    us: int
    s: float


class Arrival(NamedTuple):
    """An inbox record that was not taken yet, as it lies in the log and decoded."""

    record: Record
    read: InboxRecord

    @property
    def kind(self) -> str:
        return self.read.name

    @property
    def sender(self) -> tuple[str, int]:
        """Its source, and its number there: the same again is the same record."""
        return self.read.envelope.source, self.read.envelope.source_seq

    @property
    def incoming(self) -> Incoming:
        return known_incoming(self.read, self.record.offset)


class Notified(Protocol):
    """Told that something came, while a session is open."""

    def set(self) -> None: ...
    def clear(self) -> None: ...


class Kept:
    """One trajectory. `offered`: the inbox offset up to which its last opening was given everything.

    `submitted`: the offset of its Submit, which names its task; None when that was never seen. `left`: it is for the
    workers of another group. `since`: the offset before which it has no event. `again_s`: not before this time of the
    clock that only goes on. What a session has taken is put aside: whether its events stand is known when it is over.
    """

    __slots__ = ("again_s", "arrivals", "aside", "came", "known", "left", "offered", "partition", "since", "submitted")

    def __init__(self, partition: int, since: int, known: Known = NOTHING) -> None:
        self.partition = partition
        self.since = since
        self.known = known
        self.arrivals: list[Arrival] = []
        self.aside: list[Arrival] = []
        self.offered = -1
        self.submitted: int | None = None
        self.again_s = 0.0
        self.left = False
        self.came: Notified | None = None

    def learn(self, known: Known) -> None:
        """What the events say now; arrivals that were taken are let go."""
        self.known = known
        self.put_back()
        if self.arrivals:
            self.arrivals = [one for one in self.arrivals if not _taken(known, one)]

    def put_aside(self, offset: int) -> None:
        """One that a session has taken."""
        self.aside += [one for one in self.arrivals if one.record.offset == offset]
        self.arrivals = [one for one in self.arrivals if one.record.offset != offset]

    def put_back(self) -> None:
        """What was taken is there again: the session was fenced, or the log did not say."""
        if self.aside:
            self.arrivals = sorted(self.aside + self.arrivals, key=lambda one: one.record.offset)
            self.aside = []

    def arrive(self, arrival: Arrival) -> None:
        if arrival.kind == "Submit" and self.submitted is None:
            self.submitted = arrival.record.offset
        if _taken(self.known, arrival) or any(one.sender == arrival.sender for one in self.arrivals):
            return
        self.arrivals.append(arrival)
        if self.came is not None:
            self.came.set()

    def offer(self) -> list[Arrival]:
        """Everything that is to be given to whoever opens it now."""
        if self.arrivals:
            self.offered = max(self.offered, self.arrivals[-1].record.offset)
        return list(self.arrivals)

    def work(self, tries_max: int) -> Work | None:
        """What is to be done, whatever the time; see the module."""
        known = self.known
        new = [one for one in self.arrivals if one.record.offset > self.offered]
        if self.left or known.faulty:
            return None
        if self.noted():
            return Work.NOTE
        if known.ended or (not known.started and self.submitted is None):
            return None
        if known.owned and known.tries >= tries_max:
            return Work.POISON
        if known.parked in STOPPED and not any(one.kind in WAKES_STOPPED for one in new):
            return None
        if new or known.owned or not known.started or known.parked in AT_ONCE:
            return Work.RUN
        return None

    def noted(self) -> list[Arrival]:
        """What has come and is only written down or refused: the agent has no part in it."""
        known = self.known
        if known.ended:
            return self.arrivals
        kinds = {"Annotation"}
        if known.started:
            kinds.add("Submit")
        if known.started and known.parked not in STOPPED:
            kinds.add("Retry")
        return [one for one in self.arrivals if one.kind in kinds] if known.started else []

    @property
    def due_us(self) -> int:
        """The time at which it can be gone on with, 0 for any; something that came does not wait for it."""
        if self.known.parked != Parked.DOUBT or any(one.record.offset > self.offered for one in self.arrivals):
            return 0
        return self.known.due_us

    @property
    def waits(self) -> bool:
        """Whether it is to be gone on with at some time only."""
        return self.again_s > 0 or self.due_us > 0


NOBODYS_MAX: Final = 1000
"""Entries of trajectories that wait no more, beyond as many as wait."""


class Later:
    """Trajectories that wait for their time, by two clocks: the one that only goes on, then the wall's, which may jump.

    A look costs by those whose time has come, however many wait.
    """

    def __init__(self) -> None:
        self._serial = 0
        self._waits: dict[str, int] = {}
        self._by_s: list[tuple[float, int, str, int]] = []
        self._by_us: list[tuple[int, int, str]] = []

    def add(self, trajectory_id: str, again_s: float, due_us: int) -> None:
        """`again_s`, `due_us`: not before these times of the two clocks."""
        self._serial += 1
        self._waits[trajectory_id] = self._serial
        if len(self._by_s) + len(self._by_us) > 2 * len(self._waits) + NOBODYS_MAX:
            self._by_s = [one for one in self._by_s if self._waits.get(one[2]) == one[1]]
            self._by_us = [one for one in self._by_us if self._waits.get(one[2]) == one[1]]
            heapq.heapify(self._by_s)
            heapq.heapify(self._by_us)
        heapq.heappush(self._by_s, (again_s, self._serial, trajectory_id, due_us))

    def remove(self, trajectory_id: str) -> None:
        """Its entry stays in a heap until its time, or until there are too many of such."""
        self._waits.pop(trajectory_id, None)

    def come(self, now: Now) -> list[str]:
        """Those whose time has come: they wait no more."""
        self._pass_on(now)
        found = []
        while self._by_us and self._by_us[0][0] <= now.us:
            _, serial, trajectory_id = heapq.heappop(self._by_us)
            if self._waits.get(trajectory_id) == serial:
                del self._waits[trajectory_id]
                found.append(trajectory_id)
        return found

    def left_s(self, now: Now) -> float | None:
        """Seconds until a next look may find one; None when none waits."""
        self._pass_on(now)
        while self._by_s and self._waits.get(self._by_s[0][2]) != self._by_s[0][1]:
            heapq.heappop(self._by_s)
        while self._by_us and self._waits.get(self._by_us[0][2]) != self._by_us[0][1]:
            heapq.heappop(self._by_us)
        lefts = [self._by_s[0][0] - now.s] if self._by_s else []
        lefts += [(self._by_us[0][0] - now.us) / 1_000_000] if self._by_us else []
        return min(lefts, default=None)

    def _pass_on(self, now: Now) -> None:
        """To the wall clock, those for whom the other one has come."""
        while self._by_s and self._by_s[0][0] <= now.s:
            _, serial, trajectory_id, due_us = heapq.heappop(self._by_s)
            heapq.heappush(self._by_us, (due_us, serial, trajectory_id))


class Roster:
    """All trajectories of the partitions that are owned, and which are being worked on.

    Not thread-safe: the event loop's alone.
    """

    def __init__(self, *, tries_max: int) -> None:
        self._tries_max = tries_max
        self._kept: dict[str, Kept] = {}
        self._foreign: dict[int, Set[str]] = {}
        self._ends: dict[int, int] = {}
        self._ready: dict[str, None] = {}
        self._later = Later()
        self.busy: set[str] = set()

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._kept.values())

    @property
    def backlog(self) -> int:
        """Trajectories that could be gone on with now."""
        return len(self._ready)

    def get(self, trajectory_id: str) -> Kept | None:
        return self._kept.get(trajectory_id)

    def assigned(self, partition: int, found: Standings) -> None:
        """A partition is owned now; this is what is in it."""
        self.revoked(partition)
        self._foreign[partition], self._ends[partition] = found.foreign, found.end
        for trajectory_id, one in found.known.items():
            self._kept[trajectory_id] = Kept(partition, found.places[trajectory_id][0].first, one)
            self._sort(trajectory_id)

    def revoked(self, partition: int) -> list[str]:
        """Forgets a partition. Returns those of its trajectories that are being worked on."""
        self._foreign.pop(partition, None)
        gone = [trajectory_id for trajectory_id, kept in self._kept.items() if kept.partition == partition]
        for trajectory_id in gone:
            del self._kept[trajectory_id]
            self._ready.pop(trajectory_id, None)
            self._later.remove(trajectory_id)
        return [trajectory_id for trajectory_id in gone if trajectory_id in self.busy]

    def arrived(self, partition: int, trajectory_id: str, arrival: Arrival) -> bool:
        """Something came; False when it is for nobody here. What is no Submit of nothing waits for one."""
        if partition not in self._foreign or trajectory_id in self._foreign[partition]:
            return False
        kept = self._kept.get(trajectory_id)
        if kept is None:
            kept = self._kept[trajectory_id] = Kept(partition, self._ends[partition])
        kept.arrive(arrival)
        self._sort(trajectory_id)
        return True

    def take(self, trajectory_id: str) -> None:
        """Work on it begins."""
        self.busy.add(trajectory_id)
        self._ready.pop(trajectory_id, None)
        self._later.remove(trajectory_id)

    def give_back(self, trajectory_id: str, known: Known | None, *, again_s: float = 0.0) -> None:
        """Work on it is over. `known` None: look at it again. `again_s`: not before that time, see `Now.s`."""
        self.busy.discard(trajectory_id)
        kept = self._kept.get(trajectory_id)
        if kept is None:
            return
        kept.again_s = again_s
        if known is None:
            kept.put_back()
            kept.offered = -1
        else:
            kept.learn(known)
        self._sort(trajectory_id)

    def work_of(self, trajectory_id: str) -> Work | None:
        kept = self._kept.get(trajectory_id)
        return None if kept is None else kept.work(self._tries_max)

    def next(self, now: Now) -> str | None:
        """One to go on with, the one that could for longest first."""
        for trajectory_id in self._later.come(now):
            self._ready[trajectory_id] = None
        return next(iter(self._ready), None)

    def left_s(self, now: Now) -> float | None:
        """Seconds until one has its time though nothing comes; None when none waits for a time."""
        return self._later.left_s(now)

    def _sort(self, trajectory_id: str) -> None:
        self._ready.pop(trajectory_id, None)
        self._later.remove(trajectory_id)
        if trajectory_id in self.busy or self.work_of(trajectory_id) is None:
            return
        kept = self._kept[trajectory_id]
        if kept.waits:
            self._later.add(trajectory_id, kept.again_s, kept.due_us)
        else:
            self._ready[trajectory_id] = None


def known_of(state: State, *, grace_us: int) -> Known | None:
    """What a worker keeps of a state; None for a trajectory that is not the workers'."""
    task = state.task
    if task is not None and task.driver is not Driver.WORKER:
        return None
    inline = (call for call in state.open_intents.values() if call.place is Place.INLINE)
    due = max((call.not_after or 0 for call in inline), default=0)
    return Known(
        ended=state.ended,
        started=task is not None,
        owned=state.head.owner is not None,
        agent=task.agent if task is not None else "",
        parked=state.parked,
        tries=state.tries,
        due_us=due + grace_us if due else 0,
        taken=state.inbox,
        faulty=state.fault is not None,
    )


def _taken(known: Known, arrival: Arrival) -> bool:
    source, seq = arrival.sender
    return seq <= known.taken.get(source, -1)
