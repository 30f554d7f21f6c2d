"""The HTTP API as clients meet it: a real server on loopback, over a log in memory and Valkey."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import uvicorn

from tests.support.ledger import ledger
from tests.support.sessions import TRAJECTORY, ScriptedModel, World, asks, new_world, says
from tracklog.consumers.api.app import make_app
from tracklog.consumers.api.limits import RateLimit
from tracklog.consumers.api.services import Services
from tracklog.consumers.api.tokens import TokenFile, hash_of
from tracklog.consumers.wiring import agenda_of, projection_of
from tracklog.infra.clock import SystemClock
from tracklog.infra.redis_client import connect
from tracklog.infra.settings import LogSettings, Settings
from tracklog.producers.policy_file import PolicyFile
from tracklog.schemas import events as ev
from tracklog.schemas.errors import ApprovalNeeded
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Choice

START_S: Final = 20.0
BODY_MAX: Final = 64 * 1024
ROLES: Final = {"viewer": "viewer", "approver": "approver", "operator": "operator", "stranger": "operator"}
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


class Api(NamedTuple):
    port: int
    world: World
    services: Services
    settings: Settings

    def ask(self, method: str, path: str, body: object = None, who: str | None = "operator") -> tuple[int, Any]:
        """(status, the answer)."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        if who is not None:
            request.add_header("Authorization", f"Bearer {token(who)}")
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def fold(self) -> None:
        """What `tracklog process` and `tracklog route` do beside it."""
        log = self.world.new_log()
        projection_of(self.settings, log, self.services.client).loop.drain()
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


@pytest.fixture
def api(redis_db: str, tmp_path: Path) -> Iterator[Api]:
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(
        "\n".join(
            f'[{name}]\nperson = "{name}"\nhash = "{hash_of(token(name))}"\nroles = ["{role}"]\n'
            f'tenants = ["{"elsewhere" if name == "stranger" else "default"}"]'
            for name, role in ROLES.items()
        )
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


async def test_a_held_call_is_found_decided_and_goes_on(api: Api) -> None:
    # given a run that waits
    await api.held()
    status, found = api.ask("GET", "/approvals", who="viewer")
    assert (status, [one["call_id"] for one in found["approvals"]]) == (200, ["call-1"])
    # when somebody with the role decides, naming nobody
    path = f"/trajectories/{TRAJECTORY}/calls/call-1/decision"
    status, _ = api.ask("POST", path, {"choice": "approve"}, "approver")
    await api.go_on()
    # then it is in the record as theirs, and nothing waits
    assert status == 202
    (resolved,) = api.world.bodies(ev.ApprovalResolved)
    assert (resolved.choice, resolved.approver) == (Choice.APPROVE, "approver")
    assert api.ask("GET", "/approvals")[1]["approvals"] == []
    assert api.ask("POST", path, {"choice": "deny"}, "approver")[0] == 409


async def test_nobody_says_in_a_body_who_they_are_and_a_get_decides_nothing(api: Api) -> None:
    await api.held()
    path = f"/trajectories/{TRAJECTORY}/calls/call-1/decision"

    assert api.ask("POST", path, {"choice": "approve", "approver": "boss"}, "approver")[0] == 422
    for _ in range(20):
        assert api.ask("GET", path, who="approver")[0] == 405
    with pytest.raises(ApprovalNeeded):
        await api.go_on()


WRITES: Final[tuple[tuple[str, str, dict[str, Any], str], ...]] = (
    ("POST", f"/trajectories/{TRAJECTORY}/calls/call-1/decision", {"choice": "approve"}, "approver"),
    ("POST", f"/trajectories/{TRAJECTORY}/calls/call-1/settlement", {"happened": True}, "operator"),
    ("POST", f"/trajectories/{TRAJECTORY}/messages", {"text": "hello"}, "operator"),
    ("POST", f"/trajectories/{TRAJECTORY}/cancel", {}, "operator"),
    ("POST", f"/trajectories/{TRAJECTORY}/retry", {}, "operator"),
    (
        "POST",
        f"/trajectories/{TRAJECTORY}/outcomes",
        {"client_id": "c", "call_id": "call-1", "status": "ok"},
        "operator",
    ),
)


async def test_each_route_asks_for_a_token_a_role_and_the_tenant(api: Api) -> None:
    await api.held()
    reads = ("", "/events", "/stream")
    for method, path, body, role in WRITES:
        assert api.ask(method, path, body, None)[0] == 401, path
        assert api.ask(method, path, body, "nobody")[0] == 401, path
        assert api.ask(method, path, body, "viewer")[0] == 403, path
        other = "operator" if role == "approver" else "approver"
        assert api.ask(method, path, body, other)[0] == 403, path
    for path in (f"/trajectories/{TRAJECTORY}{one}" for one in reads):
        assert api.ask("GET", path, who=None)[0] == 401, path
        assert api.ask("GET", path, who="stranger")[0] == 404, path
    for method, path, body, role in WRITES:
        if role == "operator":
            assert api.ask(method, path, body, "stranger")[0] == 404, path
    assert api.ask("GET", "/trajectories?tenant=default", who="stranger")[0] == 403
    assert api.ask("GET", "/approvals", who="stranger")[1]["approvals"] == []


async def test_events_come_in_pages_and_as_a_stream_that_goes_on(api: Api) -> None:
    await api.held()
    events = api.ask("GET", f"/trajectories/{TRAJECTORY}/events?limit=3")[1]["events"]
    assert [one["seq"] for one in events] == [0, 1, 2]
    rest = api.ask("GET", f"/trajectories/{TRAJECTORY}/events?after=2")[1]["events"]
    assert rest[0]["seq"] == 3
    # when a stream is opened behind an event, and the run ends
    api.ask("POST", f"/trajectories/{TRAJECTORY}/calls/call-1/decision", {"choice": "approve"}, "approver")
    await api.go_on()
    streamed = await asyncio.to_thread(stream, api, 2)
    # then it gives every later event once, in order, and ends
    seqs = [int(line[4:]) for line in streamed.splitlines() if line.startswith("id: ")]
    assert seqs == list(range(3, seqs[-1] + 1))
    assert "event: TaskEnded" in streamed


def stream(api: Api, after: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=20)
    headers = {"Authorization": f"Bearer {token('viewer')}", "Last-Event-ID": str(after)}
    connection.request("GET", f"/trajectories/{TRAJECTORY}/stream", headers=headers)
    return connection.getresponse().read().decode()


async def test_what_is_said_twice_is_taken_once(api: Api) -> None:
    await api.held()
    said = {"client_id": "judge-1", "name": "score", "value": "0.5"}
    for _ in range(3):
        assert api.ask("POST", f"/trajectories/{TRAJECTORY}/annotations", said, "viewer")[0] == 202
    api.ask("POST", f"/trajectories/{TRAJECTORY}/calls/call-1/decision", {"choice": "deny"}, "approver")
    await api.go_on()
    (one,) = api.world.bodies(ev.Annotated)
    assert (one.source, one.client_id) == ("viewer", "judge-1")


def test_a_request_that_is_too_large_or_makes_no_sense_is_told_so(api: Api) -> None:
    large = api.ask("PUT", "/trajectories/new-1/task", {"agent": "a", "task": "x" * (BODY_MAX + 1)})
    assert large[0] == 413
    assert api.ask("PUT", "/trajectories/new-1/task", {"agent": "a"})[0] == 422
    assert api.ask("PUT", "/trajectories/%00/task", {"agent": "a", "task": "t"})[0] == 422
    assert api.ask("GET", "/trajectories?cursor=nonsense")[0] in (422, 503)
    assert api.ask("PUT", "/trajectories/new-1/task", {"agent": "a", "task": "t", "tenant": "elsewhere"})[0] == 403
    assert api.ask("PUT", "/trajectories/new-1/task", {"agent": "a", "task": "t"})[0] == 202


def test_a_tokens_file_that_cannot_be_read_leaves_all_as_it_was_and_is_shown(api: Api, tmp_path: Path) -> None:
    # given a file that was broken, once it is looked at again
    (tmp_path / "tokens.toml").write_text("broken = [")
    tokens = api.services.tokens
    assert tokens is not None
    tokens.look()
    # then those who were known are, and whoever watches the server sees it
    assert api.ask("GET", "/trajectories/none", who="viewer")[0] == 404
    status, said = api.ask("GET", "/readyz")
    assert status == 503
    assert "tokens.toml" in said["error"]


async def test_every_change_is_a_line_of_the_audit_log(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    await api.held()
    with caplog.at_level("INFO", "tracklog.audit"):
        api.ask("POST", f"/trajectories/{TRAJECTORY}/cancel", {"reason": "enough"}, "operator")
    (line,) = [json.loads(one.getMessage()) for one in caplog.records if one.name == "tracklog.audit"]
    assert (line["who"], line["what"], line["trajectory"]) == ("operator", "cancel", TRAJECTORY)


def test_above_the_rate_the_answer_says_when_to_come_again(api: Api) -> None:
    api.services.rate = RateLimit(1.0, api.services.clock)
    statuses = [api.ask("GET", "/trajectories")[0] for _ in range(3)]
    assert statuses[-1] == 429
