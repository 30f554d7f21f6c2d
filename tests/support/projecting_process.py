"""A projection in a process of its own, to be killed: LOG_URL REDIS_URL PREFIX HOW, follows the log until then.

HOW is `group`, a member of the projection's group (after a kill its partitions are free when its session is over),
or `hand`, all partitions at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.support.projecting import World, world_on
from tracklog.infra.settings_sections import LoopSettings
from tracklog.infra.stack.process import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
ROLES = ("schemas", "infra", "producers", "processors", "consumers")
WAIT_S = 20.0
FOLLOW_S = 60.0


def member_environment() -> dict[str, str]:
    """Of a process that runs this tree."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*(str(ROOT / role) for role in ROLES), str(ROOT)])}


@contextmanager
def projecting(log_url: str, redis_url: str, prefix: str, how: str) -> Iterator[subprocess.Popen[bytes]]:
    """Starts one; killed with SIGKILL at the end of the block, if it still runs."""
    command = [sys.executable, "-m", "tests.support.projecting_process", log_url, redis_url, prefix, how]
    process = subprocess.Popen(command, cwd=ROOT, env=member_environment())
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT_S)


def main() -> None:
    log_url, redis_url, prefix, how = sys.argv[1:]
    small = LoopSettings(batch_records_max=7, batch_wait_s=0.0, poll_timeout_s=0.05)
    with world_on(log_url, redis_url, prefix, loop=small) as world:
        running = world.running()
        if how == "group":
            running.loop.run(running.group, threading.Event())
        while True:
            at = running.loop.drain()
            assert wait_until(partial(grown, world, at), FOLLOW_S), "nobody killed this process"


def grown(world: World, positions: dict[int, int]) -> bool:
    return world.ends() != positions


if __name__ == "__main__":
    main()
