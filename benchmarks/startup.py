"""What a person waits for: the help page, and the import of the recorded runs."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

from benchmarks import services
from benchmarks.measure import Measure

RUNS = 5
IMPORT_TIMEOUT_S = 120.0
AIRLINE = Path(str(files("tracklog.producers.data") / "airline_runs.jsonl.xz"))
COMMAND = Path(sys.executable).with_name("tracklog")


def _timed(*arguments: str, folder: Path) -> float:
    begun = time.perf_counter()
    subprocess.run([str(COMMAND), *arguments], cwd=folder, capture_output=True, check=True, timeout=IMPORT_TIMEOUT_S)
    return time.perf_counter() - begun


def measure_startup() -> list[Measure]:
    with services.scratch() as folder:
        best = min(_timed("--help", folder=folder) for _ in range(RUNS))
    return [Measure("tracklog --help", best, "s", "at most", 0.3)]


def measure_import() -> list[Measure]:
    """The 120 airline runs, the process's own start included."""
    with services.scratch() as folder, services.kafka() as bootstrap:
        sqlite = _timed("--log", f"sqlite:{folder}/log.db", "import", str(AIRLINE), folder=folder)
        kafka = ("--log", f"kafka://{bootstrap}")
        (folder / "tracklog.toml").write_text("[topics]\nreplication_factor = 1\nmin_insync_replicas = 1\n")
        _timed(*kafka, "topics", "apply", folder=folder)
        on_kafka = _timed(*kafka, "import", str(AIRLINE), folder=folder)
    return [
        Measure("import of 120 runs, SQLite", sqlite, "s", "at most", 10),
        Measure("import of 120 runs, Kafka", on_kafka, "s", "at most", 10),
    ]
