"""A real API server on loopback, over a log in memory and Valkey, with a token for each role."""

from __future__ import annotations

import html
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import uvicorn

from tests.support.ledger import ledger
from tests.support.sessions import ScriptedModel, World, asks, new_world, says
from tracklog.consumers.api.app import make_app
from tracklog.consumers.api.limits import RateLimit
from tracklog.consumers.api.services import Services
from tracklog.consumers.api.tokens import TokenFile, hash_of
from tracklog.consumers.wiring import agenda_of, everything_of
from tracklog.infra.clock import SystemClock
from tracklog.infra.redis_client import connect
from tracklog.infra.settings import LogSettings, Settings
from tracklog.producers.policy_file import PolicyFile
from tracklog.schemas.errors import ApprovalNeeded
from tracklog.schemas.topics import Topics

__all__ = ["BODY_MAX", "EVERYWHERE", "HELD", "ROLES", "Api", "serving", "token"]

START_S: Final = 20.0
FORM: Final = "application/x-www-form-urlencoded"
BODY_MAX: Final = 64 * 1024
ROLES: Final = ("viewer", "approver", "operator", "recorder")
"""Each has a token by this name for the tenant `default`, and one by `stranger-...` for another."""
EVERYWHERE: Final = "viewer-of-all"
"""A viewer for all tenants."""
_ENTRY: Final = '[{name}]\nperson = "{name}"\nhash = "{hash}"\nroles = ["{role}"]\ntenants = ["{tenant}"]\n'
HELD: Final = PolicyFile(b'default = "hold"\n', "policy.toml")


def token(name: str) -> str:
    return f"token-of-{name}"


class Server(uvicorn.Server):
    """One that says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


def _said(answer: Any) -> Any:
    """JSON as values, a page as `error` is: its text."""
    said = answer.read()
    is_page = answer.headers.get("content-type", "").startswith("text/html")
    return {"error": html.unescape(said.decode())} if is_page else json.loads(said)


class Api(NamedTuple):
    port: int
    world: World
    services: Services
    settings: Settings

    def ask(
        self, method: str, path: str, body: object = None, who: str | None = "operator", *, bearer: str = ""
    ) -> tuple[int, Any]:
        """(status, the answer). `bearer`: another token than that of `who`. A body that is a text is sent as a form."""
        data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method)
        request.add_header("Content-Type", FORM if isinstance(body, str) else "application/json")
        if who is not None:
            request.add_header("Authorization", f"Bearer {bearer or token(who)}")
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, _said(answer)
        except urllib.error.HTTPError as error:
            return error.code, _said(error)

    def fold(self) -> None:
        """What `tracklog process` and `tracklog route` do beside it."""
        log = self.world.new_log()
        everything_of(self.settings, log, self.services.client).loop.drain()
        agenda_of(self.settings, log, self.services.client).loop.drain()

    async def held(self) -> None:
        """A run that waits for somebody to decide."""
        model = ScriptedModel(asks(("call-1", "readonly")), says("done"))
        with pytest.raises(ApprovalNeeded):
            await self.world.run(model, policy=HELD, clock=SystemClock())
        self.fold()

    async def go_on(self) -> None:
        model = ScriptedModel(asks(("call-1", "readonly")), says("done"))
        await self.world.run(model, policy=HELD, clock=SystemClock())
        self.fold()


@contextmanager
def serving(redis_db: str, folder: Path) -> Iterator[Api]:
    tokens = folder / "tokens.toml"
    tokens.write_text(
        "".join(
            _ENTRY.format(name=name, hash=hash_of(token(name)), role=role, tenant=tenant)
            for role in ROLES
            for name, tenant in ((role, "default"), (f"stranger-{role}", "elsewhere"))
        )
        + _ENTRY.format(name=EVERYWHERE, hash=hash_of(token(EVERYWHERE)), role="viewer", tenant="*")
    )
    with ledger() as (_, url):
        world = new_world(url)
        world.log_clock = clock = SystemClock()
        client = connect(redis_db, timeout_s=5.0)
        services = Services(
            log=world.new_log(),
            topics=Topics(),
            client=client,
            blobs=world.blobs,
            clock=clock,
            tokens=TokenFile(tokens, clock),
            rate=RateLimit(1000.0, clock),
            streams_max=2,
        )
        app = make_app(services, body_bytes_max=BODY_MAX)
        server = Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        assert server.ready.wait(START_S)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Api(port, world, services, Settings(log=LogSettings(url="memory:")))
        server.should_exit = True
        thread.join(START_S)
        client.close()
