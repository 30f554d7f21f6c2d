"""`tracklog selftest`"""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

import typer

from tracklog.consumers import selftest as check
from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.wiring import check_writable, folds_itself, opened_log, opened_redis, projection_of
from tracklog.infra.clock import SystemClock, SystemEntropy

VIEW_WAIT_S: Final = 60.0

app = new_app()


@command(app)
def selftest(
    run: Run,
    views: Annotated[bool, typer.Option("--views/--no-views", help="Also wait for the view in Redis.")] = True,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Until the view has to show it.")
    ] = VIEW_WAIT_S,
) -> None:
    """Append a small trajectory with a barrier, read it back from the log, and wait until the view shows it.

    It stays in the log, as selftest-... of the agent `selftest`. Fails when anything between here and there does: exit
    code 3 for a log or Redis that is away or a view that does not follow, 4 when it is unknown what became of a write.

    \b
    Examples:
      tracklog --log kafka://localhost:9092 --redis redis://localhost:6379 selftest
      tracklog selftest --no-views --json
    """
    settings, clock = run.settings, SystemClock()
    began = clock.monotonic_s()
    with opened_log(settings, make_topics=True) as log:
        check_writable(log, settings)
        written = asyncio.run(check.write(settings, log, SystemEntropy()))
        offsets = check.read_back(settings, log, written)
        took_log_s = clock.monotonic_s() - began
        run.out.note(f"{written.trajectory_id}: {len(offsets)} events durable ({written.barrier}) and read back")
        if views:
            with opened_redis(settings) as client:
                if folds_itself(settings):
                    projection_of(settings, log, client).loop.drain()
                asyncio.run(check.await_view(client, settings.prefix, written, offsets[-1], clock, timeout))
    told = {
        "trajectory_id": written.trajectory_id,
        "partition": written.partition,
        "events": len(offsets),
        "barrier": written.barrier,
        "log_s": round(took_log_s, 3),
        "view_s": round(clock.monotonic_s() - began - took_log_s, 3) if views else None,
    }
    if run.as_json:
        run.out.json(told)
    else:
        seen = f", and the view shows it {told['view_s']} s later" if views else ""
        run.out.text(f"ok: {len(offsets)} events written and read back in {told['log_s']} s{seen}")
