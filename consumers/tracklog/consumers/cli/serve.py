"""`tracklog serve`"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.standing import run_together, stop_at_signals, while_log_lives
from tracklog.consumers.observing.role import observed
from tracklog.consumers.wiring import blobs_of, check_writable, framing_of, opened_log, opened_redis
from tracklog.infra.clock import SystemClock
from tracklog.infra.lines import AUDIT
from tracklog.infra.log.port import Log
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.settings_http import LOOPBACK
from tracklog.schemas.errors import SettingsError

if TYPE_CHECKING:
    import uvicorn

    from tracklog.consumers.api.services import Services

app = new_app()


@command(app)
def serve(run: Run) -> None:
    """Serve the HTTP API: trajectories, approvals, messages, cancels. Its description is at /docs.

    Callers say who they are by bearer tokens: of a file (api.tokens_file), or of an OpenID provider (oidc.issuer).
    Without either it serves this machine only.
    It needs the log and Redis, and beside it `tracklog process` and `tracklog route`, which fold what it shows.

    \b
    Examples:
      tracklog serve
      tracklog --set api.host=0.0.0.0 --set api.tokens_file=tokens.toml serve
    """
    settings = run.settings.api
    if not settings.tokens_file and not run.settings.oidc.issuer and settings.host not in LOOPBACK:
        raise SettingsError(
            f"api.host is {settings.host!r} and there are no tokens: anybody could decide about held calls",
            hint="set api.tokens_file or oidc.issuer, or serve 127.0.0.1",
        )
    with opened_log(run.settings, make_topics=True) as log, opened_redis(run.settings) as client:
        check_writable(log, run.settings)
        asyncio.run(_serve(run, log, client))
    run.out.text("stopped")


async def _serve(run: Run, log: Log, client: RedisClient) -> None:
    from tracklog.consumers.api.limits import RateLimit
    from tracklog.consumers.api.oidc import Oidc
    from tracklog.consumers.api.services import Services
    from tracklog.consumers.api.tokens import TokenFile
    from tracklog.consumers.observing.server import of_server

    settings, clock = run.settings.api, SystemClock()
    services = Services(
        log=log,
        topics=run.settings.topic_names,
        client=client,
        blobs=blobs_of(run.settings),
        clock=clock,
        tokens=TokenFile(Path(settings.tokens_file), clock) if settings.tokens_file else None,
        rate=RateLimit(settings.requests_per_s, clock),
        streams_max=settings.streams_max,
        framing=framing_of(run.settings),
        settings=run.settings,
        oidc=Oidc(run.settings.oidc, clock) if run.settings.oidc.issuer else None,
    )
    server: uvicorn.Server | None = None
    listening = _listening(settings.host, settings.port)  # before anybody is told that it is ready
    services.health.needs(lambda: None if server is not None and server.started else "the API is starting")
    with observed("serve", run.settings, log, client, told=run.out.note, health=services.health) as seen:
        of_server(seen, services)
        server = _server(run, services)
        await _until_stopped(run, services, server, listening)


def _server(run: Run, services: Services) -> uvicorn.Server:
    import uvicorn

    from tracklog.consumers.api.app import make_app

    app = make_app(services, body_bytes_max=run.settings.api.body_bytes_max)
    told, as_lines = logging.getLogger(AUDIT), run.out.lines is not None
    told.setLevel(logging.INFO)
    if not as_lines:
        told.addHandler(logging.StreamHandler())
    log_config = None if as_lines else uvicorn.config.LOGGING_CONFIG  # lines go to the handler that is there already
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=log_config, log_level="warning", timeout_graceful_shutdown=5, access_log=False)
    )
    setattr(server, "capture_signals", nullcontext)  # noqa: B010 - it would raise the signal again at its end
    return server


async def _until_stopped(run: Run, services: Services, server: uvicorn.Server, listening: socket.socket) -> None:
    settings, stop = run.settings.api, stop_at_signals()

    async def serving(stop: asyncio.Event) -> None:
        leaving = asyncio.create_task(_leave(stop, services, server))
        try:
            await server.serve(sockets=[listening])
        finally:
            leaving.cancel()
            await services.ingest.close()

    lives = partial(while_log_lives, services.log, fatal=lambda: services.fatal)
    run.out.note(f"serving http://{settings.host}:{settings.port} (its page: /docs); stop with Ctrl-C")
    await run_together(stop, serving, lives)


async def _leave(stop: asyncio.Event, services: Services, server: uvicorn.Server) -> None:
    await stop.wait()
    services.stopping = server.should_exit = True


def _listening(host: str, port: int) -> socket.socket:
    """Raises SettingsError for an address that cannot be listened at."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise SettingsError(
            f"nothing can listen at {host}:{port}: {error.strerror or error}", hint="set api.host and api.port"
        ) from error
