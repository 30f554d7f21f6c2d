"""Folds a log into Redis and prints the largest resident size of this process, in MB."""

from __future__ import annotations

import sys
from pathlib import Path

from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.open import open_log
from tracklog.infra.redis_client import connect
from tracklog.infra.settings_sections import Settings
from tracklog.processors.running import trajectories


def peak_mb() -> float:
    """Largest resident size since this program began. `ru_maxrss` would be that of its parent, if larger."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main(log_url: str, redis_url: str, prefix: str) -> None:
    collect_rarely()
    settings = Settings.model_validate({"prefix": prefix, "log": {"url": log_url}, "redis": {"url": redis_url}})
    log, client = open_log(log_url), connect(redis_url, timeout_s=10.0)
    trajectories(log, client, settings, clock=SystemClock(), entropy=SystemEntropy()).loop.drain()
    client.close()
    log.close()
    print(peak_mb())


if __name__ == "__main__":
    main(*sys.argv[1:])
