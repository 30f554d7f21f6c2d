"""A dispatcher in a process of its own that stops dead at a point of each of the trajectories it is given:

    python -m tests.support.matrix_dispatcher JOB      a JSON object, see `Membership`

Ends well at SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.support.dispatch_points import probing, watch_dispatch
from tests.support.dispatching import dispatched
from tests.support.matrix_member import Membership, job_from, until_over
from tests.support.matrix_worker import tools
from tests.support.points import Points
from tracklog.consumers.dispatch import attempt
from tracklog.consumers.dispatch.dispatcher import Dispatcher
from tracklog.infra.blobs import open_blobs
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.open import open_log
from tracklog.infra.settings import DispatchSettings, LoopSettings
from tracklog.schemas.topics import Topics

START_WITHIN_S = 6.0
"""Instead of the 30 s that an attempt has: a call in doubt waits for that."""
GRACE_S = 8.0
TOOL_TIMEOUT_S = 6.0
REVOKE_WAIT_S = 15.0
"""So long that a busy machine is not taken for a call that did not end."""


async def main(job: Membership) -> None:
    vars(attempt)["START_WITHIN_S"] = START_WITHIN_S
    points, stop = Points(job.armed, Path(job.passed)), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    log, clock = open_log(job.url), SystemClock()
    made = Dispatcher(
        log,
        Topics(job.prefix),
        dispatched(probing(tools(job.ledger_url, points, TOOL_TIMEOUT_S), points)),
        blobs=open_blobs(job.blobs),
        clock=clock,
        entropy=SystemEntropy(),
        name=f"dispatcher-{os.getpid()}",
        settings=DispatchSettings(grace_s=GRACE_S, revoke_wait_s=REVOKE_WAIT_S),
        loop_settings=LoopSettings(poll_timeout_s=0.1),
        told=_tell,
    )
    watch_dispatch(log, made, points)
    try:
        await made.run(stop)
    finally:
        log.close()


def _tell(said: str) -> None:
    sys.stderr.write(f"{said}\n")


if __name__ == "__main__":
    until_over(main(job_from(sys.argv[1])))
