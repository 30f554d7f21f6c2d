"""What goes wrong with processes: when the scenario says, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.simulation.loop import Process, SimLoop
from tests.simulation.scenario import HELD, Fault, Scenario, Timed, Trigger
from tests.simulation.tools import SKEW_S_MAX

BACK_S: Final = 3.0
"""How long it takes until a process that was frozen and replaced is started again, at most."""


class Faults:
    """`start` starts a process of a name anew."""

    def __init__(self, loop: SimLoop, scenario: Scenario, start: Callable[[str], None]) -> None:
        self._loop, self._start = loop, start
        self._timed: list[Timed] = list(scenario.faults)
        self._triggers: dict[tuple[str, int], list[Trigger]] = {}
        for one in scenario.triggers:
            self._triggers.setdefault((one.point, one.nth), []).append(one)
        self._done: Counter[str] = Counter()
        self._pending = 0
        self.running: dict[str, Process] = {}
        self.gone: set[str] = set()
        self.moves: set[Process] = set()
        self.told: Callable[[str], None] = lambda _: None

    @property
    def over(self) -> bool:
        """Whether nothing is frozen, away or still to come at a step."""
        frozen = any(one.frozen for one in self._loop.processes if one.alive)
        return not self._timed and not frozen and not self._pending

    def give_up(self) -> None:
        """Those for steps that did not come."""
        self._timed.clear()

    def before_step(self, process: Process) -> None:
        while self._timed and self._timed[0].step <= self._loop.steps:
            one = self._timed.pop(0)
            if one.target in self.running:
                self._apply(self.running[one.target], one.fault)
        if process.due:
            process.due = [(left - 1, fault) for left, fault in process.due]
            if process.due[0][0] <= 0:
                self._apply(process, process.due.pop(0)[1])

    def at(self, point: str, process: Process) -> bool:
        """A process does something; True when it is held back until the process wakes."""
        if process is self._loop.world:
            return False
        self._done[point] += 1
        held = False
        for one in self._triggers.get((point, self._done[point]), ()):
            who = [other for name, other in self.running.items() if name[0] == "d"] if one.everybody else [process]
            for each in who:
                if one.steps == HELD and each is process:
                    held = self._apply(each, one.fault) or held
                else:
                    each.due = sorted([*each.due, (max(1, one.steps), one.fault)], key=lambda due: due[0])
        return held

    def _apply(self, process: Process, fault: Fault) -> bool:
        """Whether the process is now frozen or dead."""
        name = process.name.partition("#")[0]
        if not process.alive or process.frozen or (self.running.get(name) is not process and fault.what != "kill"):
            return False
        away = {"kill", "freeze", "suspend", "replace"}
        seconds = f" for {fault.seconds:.1f} s" if fault.what in away else ""
        if fault.what == "gone" and not self._others_of(name):
            return False
        self.told(f"{fault.what} {process.name}{seconds}")
        match fault.what:
            case "kill" | "gone":
                process.kill()
                if fault.what == "gone":
                    self.gone.add(name)
                elif self.running.get(name) is process:
                    self._later(fault.seconds, name)
            case "move":
                self.moves.add(process)
            case "jump":
                process.skew_us = round(self._loop.chance.uniform(-SKEW_S_MAX, SKEW_S_MAX) * 1_000_000)
            case _:
                process.frozen, process.awake_s = True, self._loop.time() + fault.seconds
                self._loop.later(fault.seconds, self._wake, process, fault)
                if fault.what == "replace":
                    self._later(self._loop.chance.uniform(0.0, BACK_S), name)
        return fault.what not in ("move", "jump")

    def _others_of(self, name: str) -> bool:
        """Whether another one does what this one did; nobody else is a trajectory's owner."""
        return name[0] in "dr" and any(
            one[0] == name[0] and one != name and one not in self.gone for one in self.running
        )

    def _later(self, seconds: float, name: str) -> None:
        def start() -> None:
            self._pending -= 1
            self._start(name)

        self._pending += 1
        self._loop.later(seconds, start)

    def _wake(self, process: Process, fault: Fault) -> None:
        if process.alive:
            self.told(f"wake {process.name}")
        process.frozen = False
        if fault.what == "suspend":
            process.slept_s += fault.seconds
