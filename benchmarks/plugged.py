"""A processor made from docs/processors.md alone: plugged in under load, killed 20 times, rebuilt twice."""

from __future__ import annotations

from benchmarks import services
from benchmarks.measure import Measure
from tests.support.plugged_in import PluggedIn

RUNS = 200
KILLS = 20
REBUILDS = 2


def measure_plugged() -> list[Measure]:
    with services.kafka() as bootstrap, services.valkey() as redis_url, services.scratch() as folder:
        plugged = PluggedIn(f"kafka://{bootstrap}", redis_url, "plugged", folder)
        plugged.write_it()
        found = plugged.run(runs=RUNS, kills=KILLS, rebuilds=REBUILDS)
        plugged.close()
    return [
        Measure("plugged in: runs appended meanwhile", found.runs, "", "at least", RUNS),
        Measure("plugged in: events", found.events, ""),
        Measure("plugged in: SIGKILLs", found.kills, "", "at least", KILLS),
        Measure("plugged in: rebuilds equal to what was live", sum(map(bool, found.equal)), "", "at least", REBUILDS),
        Measure("plugged in: trajectories unlike a plain count", len(found.wrong), "", "at most", 0),
        Measure("plugged in: verified by its command", found.verified, "", "at least", 1),
    ]
