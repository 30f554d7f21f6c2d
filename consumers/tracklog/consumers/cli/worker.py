"""`tracklog worker`"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tracklog.consumers.cli.command import DRIFT_HELP, command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.standing import run_together, stop_at_signals, tell_outage, while_log_lives
from tracklog.consumers.observing.role import Observed, observed
from tracklog.consumers.observing.roles import of_worker
from tracklog.consumers.wiring import blobs_of, check_writable, opened_log, opened_redis, producer_of
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.port import Log
from tracklog.infra.settings import Settings
from tracklog.producers.agents import load_agent
from tracklog.producers.relay import TokenRelay
from tracklog.producers.settle import Timing
from tracklog.producers.turn import Agent
from tracklog.producers.versions import Drift
from tracklog.producers.worker import Worker
from tracklog.producers.worker_files import WorkerFiles, has_files
from tracklog.producers.worker_run import Runner
from tracklog.schemas.errors import InputError, SettingsError

app = new_app()


@command(app)
def worker(
    run: Run,
    specs: Annotated[list[str], typer.Argument(metavar="MODULE:AGENT...", help="The agents it has.")],
    name: Annotated[str | None, typer.Option(help="What its claims say (else host and process id).")] = None,
    drift: Annotated[Drift | None, typer.Option(help=DRIFT_HELP)] = None,
) -> None:
    """Run submitted tasks. Start as many as you like: they share the work, and take over from one that dies.

    Runs until it is told to stop (SIGTERM, Ctrl-C): then it finishes the steps under way, for at most
    worker.move_wait_s, and the others go on. It needs the log and the blob store, and Redis only for
    worker.relay_tokens.

    A run that was left with another model, prompt, tools or code crosses over to what the worker has, and says so in
    its record; it is stopped as `drift` when a call without an outcome is of a tool that is another one now. --drift
    says it for all: pin (recorded prompt, tools and model go on), cross, refuse.

    \b
    Examples:
      tracklog worker my_agents.travel:agent
      tracklog --log kafka://localhost:9092 worker agents:traveller agents:clerk --set worker.trajectories_max=100
    """
    agents = _agents(specs)
    collect_rarely()
    with opened_log(run.settings, make_topics=True) as log:
        check_writable(log, run.settings)
        owner = name if name is not None else f"{socket.gethostname()}:{os.getpid()}"
        with observed("worker", run.settings, log, told=run.out.note) as seen:
            asyncio.run(_work(run, log, agents, owner, drift, seen))
    run.out.text("stopped")


def _agents(specs: list[str]) -> dict[str, Agent]:
    agents = [load_agent(spec) for spec in specs]
    names = [agent.name for agent in agents]
    twice = next((one for one in names if names.count(one) > 1), None)
    if twice is not None:
        raise InputError(f"two agents are called {twice!r}", hint="tasks name an agent: give each its own name")
    return {agent.name: agent for agent in agents}


async def _work(
    run: Run, log: Log, agents: dict[str, Agent], owner: str, drift: Drift | None, seen: Observed | None
) -> None:
    stop, settings = stop_at_signals(), run.settings
    async with producer_of(settings, log) as producer, _relay(settings) as relay:
        files = await asyncio.to_thread(_files, settings, agents)
        try:
            runner = Runner(
                log=log,
                producer=producer,
                topics=settings.topic_names,
                agents=agents,
                blobs=blobs_of(settings),
                clock=SystemClock(),
                entropy=SystemEntropy(),
                name=owner,
                settings=settings.worker,
                files=files,
                failures_a_day=settings.checkpoints.failures_a_day,
                body_inline_bytes_max=settings.blobs.body_inline_bytes_max,
                drift=drift,
                relay=relay,
                timing=Timing(
                    start_within_s=settings.worker.start_within_s,
                    grace_s=settings.worker.grace_s,
                    settle_wait_s=settings.worker.settle_wait_s,
                ),
            )
            made = Worker(runner, loop_settings=settings.loop, told=run.out.note)
            made.partition_loop.on_outage = lambda error: tell_outage(run, error)
            of_worker(seen, made, producer)
            group = settings.topic_names.group(settings.worker.group)
            run.out.note(f"running {', '.join(sorted(agents))} as a member of {group}; stop with Ctrl-C")
            await run_together(stop, made.run, partial(while_log_lives, log))
        finally:
            if files is not None:
                await asyncio.to_thread(files.close)


@asynccontextmanager
async def _relay(settings: Settings) -> AsyncIterator[TokenRelay | None]:
    """Raises StoreUnavailable when it is wanted and there is no Redis."""
    if not settings.worker.relay_tokens:
        yield None
        return
    if settings.redaction.append:
        raise SettingsError(
            "worker.relay_tokens gives on what a model says before it could be looked through for secrets",
            hint="switch it off, or redaction.append",
        )
    with opened_redis(settings) as client:
        async with TokenRelay(client, settings.prefix, SystemEntropy()) as relay:
            yield relay


def _files(settings: Settings, agents: dict[str, Agent]) -> WorkerFiles | None:
    """Where their files are; None when no agent has any."""
    root = settings.checkpoints.workspaces
    if not root or not any(map(has_files, agents.values())):
        return None
    files = WorkerFiles(Path(root), SystemEntropy().nonce().hex())
    files.open()
    return files
