"""A measurement, its target, and how a run of them is printed and kept."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Bound = Literal["at least", "at most", "shown"]


@dataclass(frozen=True, slots=True)
class Measure:
    """One number. `shown` has no target: it is there to compare with."""

    name: str
    value: float
    unit: str
    bound: Bound = "shown"
    target: float = 0.0

    @property
    def met(self) -> bool:
        if self.bound == "shown":
            return True
        return self.value >= self.target if self.bound == "at least" else self.value <= self.target

    @property
    def wanted(self) -> str:
        return "" if self.bound == "shown" else f"{self.bound} {self.target:g}"


def machine_load() -> Measure:
    """How many processes wanted a processor: times above the number of cores are not what this machine can do."""
    return Measure(f"load average of the machine meanwhile, {os.cpu_count()} cores", os.getloadavg()[1], "")


def cpu_s_of(pid: int) -> float:
    """The processor seconds that a process has taken so far, as Linux counts them."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def milliseconds_p50(durations_s: Sequence[float]) -> float:
    return statistics.median(durations_s) * 1000


def best_us(call: Callable[[], object], *, number: int, repeats: int = 7) -> float:
    """Microseconds a call, the best of several rounds: what the code costs when nobody else is running."""
    import timeit

    return min(timeit.repeat(call, number=number, repeat=repeats)) / number * 1e6


def table(measures: Iterable[Measure]) -> str:
    """A Markdown table."""
    rows = ["| what | measured | unit | wanted | |", "| --- | ---: | --- | --- | --- |"]
    for m in measures:
        value = f"{m.value:,.0f}" if m.value >= 1000 else f"{m.value:.3g}"
        mark = "" if m.bound == "shown" else "met" if m.met else "MISSED"
        rows.append(f"| {m.name} | {value} | {m.unit} | {m.wanted} | {mark} |")
    return "\n".join(rows)
