"""What one seed decides before a run: the work, and everything that goes wrong. The order of steps is drawn later."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Final, NamedTuple

from tests.simulation.log import APPEND_FAULTS

CLASSES: Final = ("readonly", "idempotent", "idempotent_probed", "probe", "opaque")
WEIGHTS: Final = (1, 3, 3, 4, 4)
WAYS: Final = ("", "", "", "_here", "_held", "_held", "_job")
"""How a tool of the class runs: by a dispatcher, in the agent's process, once somebody approved, answering later."""
TOOLS: Final = tuple(kind + way for kind in CLASSES for way in sorted(set(WAYS)))
NARROW: Final = (
    "opaque",
    "opaque",
    "probe",
    "probe",
    "idempotent",
    "idempotent_probed",
    "opaque_here",
    "probe_here",
    "idempotent_here",
    "opaque_job",
)
OTHERS: Final = ("sleep", "send", "receive")
SEND_FAULTS: Final = ("lost", "late", "late", "late", "answer lost", "answer lost", "unknown", "refused")
"""Never there; there late; done without an answer; done and in doubt at once; refused without an effect."""
STEPS: Final = 700
"""Faults of processes come at one of so many first steps, most of them early: there the work is done."""
LONG_S: Final = (0.5, 3.0, 12.0, 20.0, 26.0, 28.0, 33.0, 45.0, 58.0, 65.0, 75.0, 110.0, 140.0)
"""How long something is away: about an attempt (30), it and the grace (60), a key less the grace (70), and both."""
LATE_S: Final = (20.0, 24.0, 26.0, 28.0, 29.0, 33.0, 45.0, 58.0, 65.0, 75.0, 110.0, 140.0)
"""How long a winner is away."""
POINTS: Final = (
    ("Attempt", 12),
    ("send", 8),
    ("effect", 4),
    ("Outcome", 3),
    ("Expired", 4),
    ("Done", 2),
    ("Pending", 1),
    ("ToolIntent", 2),
    ("ToolResult", 2),
    ("OwnershipClaimed", 2),
    ("ApprovalRequested", 1),
    ("ApprovalResolved", 1),
    ("TimerDue", 1),
    ("Decision", 1),
    ("Escalated", 1),
    ("probe", 1),
    ("_read", 4),
    ("ends", 6),
    ("_read_back", 2),
    ("restore", 1),
)
"""What a process does, and how often a fault is about it: an append by its type, a use of a tool, a question to the log
by its function. `_read` is a read-back of the ledger, `ends` the last look at the events before a send."""
ACTS: Final = ("kill", "kill", "gone", *("freeze",) * 5, "replace", "replace", "suspend", "suspend", "move", "jump")

ACTS_OF_WINNERS: Final = (*("freeze",) * 5, "replace", "replace", "suspend", "suspend", "kill", "gone", "gone")


class Fault(NamedTuple):
    """`what`: kill (and started again after `seconds`), gone (for good), freeze, suspend (its monotonic time stands
    still too), replace (frozen, and another of its name started), move (loses its partition), jump (its wall clock)."""

    what: str
    seconds: float


class Timed(NamedTuple):
    """At a step of the run, to a process by its name."""

    step: int
    target: str
    fault: Fault


class Trigger(NamedTuple):
    """At the nth time that something is done in the run, to whoever does it (`all`: to every dispatcher), so many of
    its steps later. HELD: an append that does not leave the process before it wakes."""

    point: str
    nth: int
    steps: int
    everybody: bool
    fault: Fault


HELD: Final = -1


@dataclass(frozen=True)
class Scenario:
    """`work`: for each trajectory its turns, each what is done in it, tools side by side. `cancels`: (trajectory, s).

    `one_name`: all dispatchers are called the same, as in containers that are. `person`: somebody settles escalations.
    `approvers`: what people say of a request, in order: (seconds after it, choice). `trims`: ledger and inbox are
    trimmed every so many seconds; 0 for never. `checkpoints`: owners take one after every turn, and go back to it.
    """

    seed: int
    work: tuple[tuple[tuple[str, ...], ...], ...]
    dispatchers: int = 2
    faults: tuple[Timed, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    appends: tuple[tuple[int, str], ...] = ()
    sends: tuple[tuple[int, str], ...] = ()
    cancels: tuple[tuple[int, float], ...] = ()
    approvers: tuple[tuple[float, str], ...] = ()
    person: bool = False
    one_name: bool = False
    routers: int = 1
    trims: float = 0.0
    checkpoints: bool = False

    @classmethod
    def of(cls, seed: int) -> Scenario:
        """Every third is all about the sends of one or two calls."""
        chance = random.Random(f"{seed}/scenario")
        made = cls._narrow(seed, chance) if seed % 3 == 2 else cls._broad(seed, chance)
        return made._with_checkpoints(chance) if chance.random() < 0.4 else made

    def _with_checkpoints(self, chance: random.Random) -> Scenario:
        """There is one more turn for each owner: the last has nothing to go back to."""
        work = tuple((*turns, _turn(chance, chance.choice((1, 1, 2)))) for turns in self.work)
        return replace(self, work=work, checkpoints=True)

    @classmethod
    def _narrow(cls, seed: int, chance: random.Random) -> Scenario:
        tools = tuple(chance.choice(NARROW) for _ in range(chance.choice((1, 1, 2))))
        act = Fault(chance.choice(ACTS_OF_WINNERS), chance.choice(LATE_S) * chance.uniform(0.95, 1.03))
        steps = HELD if chance.random() < 0.2 else int(10 * chance.random() ** 2)
        triggers = {Trigger("Attempt", chance.choice((1, 1, 2)), steps, False, act)}
        triggers |= {_trigger(chance) for _ in range(chance.choice((0, 0, 1, 1, 2)))}
        if chance.random() < 0.2:  # a winner that is late is late with saying so, too
            triggers.add(Trigger("Expired", 1, HELD, False, _fault(chance)))
        if tools[0].startswith("idempotent") and chance.random() < 0.4:  # nobody is there while the key lives
            away = Fault(chance.choice(("kill", "freeze", "suspend")), chance.choice((65.0, 75.0, 110.0, 140.0)))
            triggers.add(Trigger(chance.choice(("send", "effect")), 1, int(4 * chance.random()), True, away))
        return cls(
            seed,
            ((tools,),),
            dispatchers=2,
            triggers=tuple(sorted(triggers)),
            appends=_numbered(chance, chance.choice((0, 0, 1)), 20, APPEND_FAULTS),
            sends=tuple((n, chance.choice(SEND_FAULTS)) for n in range(1, 7) if chance.random() < 0.6),
            cancels=((0, chance.choice((0.6, 4.0)) * chance.random()),) if chance.random() < 0.2 else (),
            approvers=((chance.random(), "approve"),),
            person=chance.random() < 0.8,
            trims=chance.choice((0.0, 3.0)),
        )

    @classmethod
    def _broad(cls, seed: int, chance: random.Random) -> Scenario:
        work = tuple(
            tuple(_turn(chance, chance.choice((1, 1, 2, 3))) for _ in range(chance.choice((1, 1, 1, 2))))
            for _ in range(chance.choice((1, 1, 1, 2)))
        )
        dispatchers = chance.choice((2, 2, 3))
        names = [f"d{n}" for n in range(dispatchers)]
        others = [*(f"t{n}" for n in range(len(work))), "r0"]
        return cls(
            seed,
            work,
            dispatchers,
            tuple(sorted(_timed(chance, names, others) for _ in range(chance.choice((0, 0, 1, 2, 4))))),
            tuple(sorted({_trigger(chance) for _ in range(chance.choice((0, 1, 2, 2, 3, 4)))})),
            _numbered(chance, chance.choice((0, 0, 1, 3, 6)), 80, APPEND_FAULTS),
            _numbered(chance, chance.choice((0, 1, 2, 3)), 6, SEND_FAULTS),
            tuple(
                (n, chance.choice((1.0, 4.0, 40.0)) * chance.random())
                for n in range(len(work))
                if chance.random() < 0.3
            ),
            tuple(sorted(_word(chance) for _ in range(chance.choice((0, 1, 1, 2, 3))))),
            chance.random() < 0.7,
            chance.random() < 0.3,
            chance.choice((1, 1, 2)),
            chance.choice((0.0, 5.0, 20.0)),
        )

    def smaller(self) -> Iterator[Scenario]:
        """The same with one thing less, the largest things first."""
        for n in range(len(self.work)):
            if len(self.work) > 1 and n == len(self.work) - 1:
                yield replace(self, work=self.work[:-1], cancels=tuple(one for one in self.cancels if one[0] < n))
            for turn in range(len(self.work[n])):
                if len(self.work[n]) > 1:
                    yield self._with_work(n, self.work[n][:turn] + self.work[n][turn + 1 :])
                for at, _ in enumerate(self.work[n][turn]):
                    if len(self.work[n][turn]) > 1:
                        fewer = self.work[n][turn][:at] + self.work[n][turn][at + 1 :]
                        yield self._with_work(n, (*self.work[n][:turn], fewer, *self.work[n][turn + 1 :]))
        if self.dispatchers > 1:
            left = tuple(one for one in self.faults if one.target != f"d{self.dispatchers - 1}")
            yield replace(self, dispatchers=self.dispatchers - 1, faults=left)
        if self.routers > 1:
            yield replace(self, routers=1)
        if self.trims:
            yield replace(self, trims=0.0)
        if self.checkpoints:
            yield replace(self, checkpoints=False)
        for name in ("faults", "triggers", "appends", "sends", "cancels", "approvers"):
            these = getattr(self, name)
            for n in range(len(these)):
                yield replace(self, **{name: these[:n] + these[n + 1 :]})

    def _with_work(self, n: int, turns: tuple[tuple[str, ...], ...]) -> Scenario:
        return replace(self, work=(*self.work[:n], turns, *self.work[n + 1 :]))

    def __str__(self) -> str:
        """What differs from a calm run."""
        own = ((one.name, getattr(self, one.name), one.default) for one in fields(self))
        return "\n".join(f"  {name} = {value}" for name, value, default in own if value != default)


def _turn(chance: random.Random, count: int) -> tuple[str, ...]:
    return tuple(
        chance.choice(OTHERS) if chance.random() < 0.12 else chance.choices(CLASSES, WEIGHTS)[0] + chance.choice(WAYS)
        for _ in range(count)
    )


def _timed(chance: random.Random, dispatchers: list[str], others: list[str]) -> Timed:
    target = chance.choice(dispatchers) if chance.random() < 0.7 else chance.choice(others)
    return Timed(int(STEPS * chance.random() ** 1.7), target, _fault(chance))


def _trigger(chance: random.Random) -> Trigger:
    points, weights = zip(*POINTS, strict=True)
    point = chance.choices(points, weights)[0]
    steps = HELD if point[0].isupper() and chance.random() < 0.4 else int(14 * chance.random() ** 2)
    return Trigger(point, 1 + int(5 * chance.random() ** 2), steps, chance.random() < 0.15, _fault(chance))


def _fault(chance: random.Random) -> Fault:
    return Fault(chance.choice(ACTS), chance.choice(LONG_S) * chance.uniform(0.9, 1.1))


def _word(chance: random.Random) -> tuple[float, str]:
    return chance.choice((1.0, 5.0, 60.0)) * chance.random(), chance.choice(
        ("approve", "approve", "deny", "edit", "answer")
    )


def _numbered(chance: random.Random, count: int, among: int, kinds: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    return tuple(sorted({1 + chance.randrange(among): chance.choice(kinds) for _ in range(count)}.items()))
