"""What one seed decides before a run: the work, and everything that goes wrong. The order of steps is drawn later."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tests.simulation.log import APPEND_FAULTS

TOOLS: Final = ("readonly", "idempotent", "idempotent_probed", "probe", "opaque")
SEND_FAULTS: Final = ("lost", "late", "answer lost", "unknown", "refused")
"""Never there; there late; done without an answer; done and in doubt at once; refused without an effect."""
STEPS: Final = 700
"""Faults of processes come at one of so many first steps, most of them early: there the work is done."""


class Fault(NamedTuple):
    """At a step of the run. `what`: kill, freeze, replace (frozen, and another of its name started), move, gone."""

    step: int
    what: str
    target: str
    seconds: float


@dataclass(frozen=True)
class Scenario:
    """`work`: for each trajectory its turns, each the tools that it calls side by side. `cancels`: (trajectory, s).

    `one_name`: all dispatchers are called the same, as in containers that are. `person`: somebody settles escalations.
    """

    seed: int
    work: tuple[tuple[tuple[str, ...], ...], ...]
    dispatchers: int
    faults: tuple[Fault, ...]
    appends: tuple[tuple[int, str], ...]
    sends: tuple[tuple[int, str], ...]
    cancels: tuple[tuple[int, float], ...]
    person: bool
    one_name: bool = False

    @classmethod
    def of(cls, seed: int) -> Scenario:
        chance = random.Random(f"{seed}/scenario")
        work = tuple(
            tuple(
                tuple(chance.choice(TOOLS) for _ in range(chance.choice((1, 1, 2, 3))))
                for _ in range(chance.choice((1, 1, 2)))
            )
            for _ in range(chance.choice((1, 1, 2)))
        )
        dispatchers = chance.choice((2, 2, 3))
        names = [f"d{n}" for n in range(dispatchers)]
        owners = [f"t{n}" for n in range(len(work))]
        faults = [_fault(chance, names, owners) for _ in range(chance.choice((0, 1, 2, 3, 4, 6, 8)))]
        if chance.random() < 0.3:
            faults.append(Fault(_step(chance), "gone", names[0], 0.0))
        return cls(
            seed,
            work,
            dispatchers,
            tuple(sorted(faults)),
            _numbered(chance, chance.choice((0, 1, 3, 6)), 80, APPEND_FAULTS),
            _numbered(chance, chance.choice((0, 1, 2, 4)), 8, SEND_FAULTS),
            tuple((n, chance.uniform(0.0, 2.0)) for n in range(len(work)) if chance.random() < 0.3),
            chance.random() < 0.7,
            chance.random() < 0.3,
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
        for n in range(len(self.faults)):
            yield replace(self, faults=self.faults[:n] + self.faults[n + 1 :])
        for n in range(len(self.appends)):
            yield replace(self, appends=self.appends[:n] + self.appends[n + 1 :])
        for n in range(len(self.sends)):
            yield replace(self, sends=self.sends[:n] + self.sends[n + 1 :])
        for n in range(len(self.cancels)):
            yield replace(self, cancels=self.cancels[:n] + self.cancels[n + 1 :])

    def _with_work(self, n: int, turns: tuple[tuple[str, ...], ...]) -> Scenario:
        return replace(self, work=(*self.work[:n], turns, *self.work[n + 1 :]))


def _fault(chance: random.Random, dispatchers: list[str], owners: list[str]) -> Fault:
    target = chance.choice(dispatchers) if chance.random() < 0.75 else chance.choice(owners)
    what = chance.choice(("kill", "freeze", "freeze", "replace", "move"))
    seconds = chance.choice((0.5, 2.0, 8.0, 40.0, 100.0)) * chance.uniform(0.5, 1.5)
    return Fault(_step(chance), what, target, seconds)


def _step(chance: random.Random) -> int:
    return int(STEPS * chance.random() ** 1.7)


def _numbered(chance: random.Random, count: int, among: int, kinds: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    return tuple(sorted({1 + chance.randrange(among): chance.choice(kinds) for _ in range(count)}.items()))
