"""Exports a log to the end it has now, and prints as JSON what that took: seconds, processor seconds, peak MB."""

from __future__ import annotations

import json
import sys
import time

from benchmarks.projection_process import peak_mb
from tracklog.consumers.export.running import export_of
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.open import open_log
from tracklog.infra.settings_sections import Settings


def main(given: str) -> None:
    collect_rarely()
    settings = Settings.model_validate_json(given)
    log = open_log(settings.log.url)
    export = export_of(log, settings, clock=SystemClock(), entropy=SystemEntropy())
    began_s, cpu_s = time.perf_counter(), time.process_time()
    export.loop.drain()
    took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
    log.close()
    print(json.dumps({"events": export.told.events, "seconds": took_s, "cpu_s": cpu_s, "peak_mb": peak_mb()}))


if __name__ == "__main__":
    main(sys.argv[1])
