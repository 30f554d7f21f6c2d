"""One exporter, from a broker into a Delta table on the local disk: the recorded airline runs, again and again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks import services
from benchmarks.cold_log import fill
from benchmarks.measure import Measure
from tracklog.infra.log.open import open_log
from tracklog.infra.settings import Settings

EVENTS: Final = 300_000
FINISH_S: Final = 120.0


def measure_export() -> list[Measure]:
    with services.kafka() as bootstrap, services.scratch() as folder:
        settings = settings_on(f"kafka://{bootstrap}", folder)
        log = open_log(settings["log"]["url"])
        events = fill(log, Settings.model_validate(settings), EVENTS)
        log.close()
        said = exported(settings)
    if said["events"] != events:
        raise RuntimeError(f"{said['events']} of {events} events were exported")
    return [
        Measure("export: a process into a local table", events / said["seconds"], "events/s", "at least", 40_000),
        Measure("... its processor time, all threads", said["cpu_s"] / events * 1e6, "us an event"),
        Measure("... its peak memory", said["peak_mb"], "MB", "at most", 500),
    ]


def settings_on(log: str, folder: Path) -> dict[str, Any]:
    return {
        "prefix": "bench",
        "home": str(folder),
        "log": {"url": log},
        "topics": {"replication_factor": 1, "min_insync_replicas": 1},
        "cold": {"url": str(folder / "cold")},
    }


def exported(settings: dict[str, Any]) -> dict[str, Any]:
    """What an exporter in a process of its own says of its run."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.exporting_process", json.dumps(settings)],
        stdout=subprocess.PIPE,
        timeout=FINISH_S,
        check=True,
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said
