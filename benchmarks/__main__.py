"""`python -m benchmarks`: measures on real services on this machine, prints a table, keeps it in RESULTS.md.

Of some parts only, a table is kept when `--keep` says so, in a section of its own.

Exits 1 when a target is missed. Run it on a quiet machine: it is the only place where times are asserted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final

from benchmarks import (
    chain,
    churning,
    dispatching,
    exporting,
    held,
    ingesting,
    live,
    others,
    parked,
    plugged,
    processing,
    projecting,
    replaying,
    results,
    services,
    sessions,
    startup,
    waiting,
    writing,
)
from benchmarks.measure import Measure, table
from tracklog.infra.collector import collect_rarely


def on_kafka() -> list[Measure]:
    with services.kafka() as bootstrap:
        return writing.measure_kafka(bootstrap)


def on_sqlite() -> list[Measure]:
    with services.scratch() as folder:
        return writing.measure_sqlite(str(folder / "log.db"))


PARTS: dict[str, Callable[[], list[Measure]]] = {
    "chain": chain.measure_chain,
    "startup": startup.measure_startup,
    "sqlite": on_sqlite,
    "kafka": on_kafka,
    "projection": projecting.measure_projection,
    "memory": projecting.measure_memory,
    "processors": processing.measure_processors,
    "rebuild": processing.measure_rebuild,
    "churn": churning.measure_churn,
    "churn-brokers": churning.measure_churn_of_brokers,
    "plugged": plugged.measure_plugged,
    "import": startup.measure_import,
    "resume": sessions.measure_resume,
    "stored": sessions.measure_stored,
    "others": others.measure_others,
    "turns": sessions.measure_many_turns,
    "parked": parked.measure_parked,
    "dispatch": dispatching.measure_dispatch,
    "held": held.measure_held,
    "waiting": waiting.measure_waiting,
    "replay": replaying.measure_replays,
    "ingest": ingesting.measure_ingest,
    "live": live.measure_live,
    "export": exporting.measure_export,
}

LONG: Final = frozenset({"churn", "churn-brokers", "plugged", "rebuild"})
"""Of minutes each: only when they are asked for."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "parts",
        nargs="*",
        default=[],
        help=f"which parts: {', '.join(PARTS)} (default: all but {', '.join(sorted(LONG))})",
    )
    parser.add_argument("--keep", action="store_true", help="keeps the table of these parts too")
    options = parser.parse_args()
    asked = options.parts
    unknown = [part for part in asked if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    collect_rarely()
    measures: list[Measure] = []
    for name in asked or [part for part in PARTS if part not in LONG]:
        print(f"-- {name}", file=sys.stderr, flush=True)
        measures += PARTS[name]()
    print(table(measures))
    if options.keep or not asked:
        results.keep(" ".join(["python -m benchmarks", *asked]) if asked else "make bench", table(measures))
    return 0 if all(m.met for m in measures) else 1


if __name__ == "__main__":
    sys.exit(main())
