"""Endpoints that misbehave, behind a dispatcher and over real sockets: nothing is sent twice in silence."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.support.dispatching import dispatching, new_dispatcher
from tests.support.sessions import ScriptedModel, World, asks, new_world, says
from tracklog.consumers.dispatch import dispatcher as dispatcher_module
from tracklog.infra.clock import SystemClock
from tracklog.producers.http_tool import http_tool
from tracklog.producers.settle import Timing
from tracklog.producers.tool_run import run_precondition, run_tool
from tracklog.producers.tools import CallContext, Tool, ToolSet
from tracklog.schemas import events as ev
from tracklog.schemas.errors import PersonNeeded
from tracklog.schemas.values import ResultStatus

SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}}
TIMEOUT_S: Final = 0.6
AMPLE_S: Final = 20.0
"""For answers that do come."""
PAST_DOUBT_S: Final = 2 * 86_400.0
OK, ERROR = ResultStatus.OK, ResultStatus.ERROR

Behaviour = Callable[[socket.socket], None]


def _head(status: str, body: bytes, *more: str) -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *more, "", "")).encode() + body


def _says(status: str, body: bytes = b"{}", *more: str) -> Behaviour:
    return lambda one: one.sendall(_head(status, body, *more))


def _never(one: socket.socket) -> None:
    one.settimeout(10.0)
    one.recv(1)  # until the other side has had enough


def _late(one: socket.socket) -> None:
    _never(one)
    one.sendall(_head("200 OK", b'"late"'))


def _resets(one: socket.socket) -> None:
    one.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"pa')
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _floods(one: socket.socket) -> None:
    one.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    for _ in range(40):
        one.sendall(b"x" * 1024 * 1024)


def _twice(one: socket.socket) -> None:
    one.sendall(_head("200 OK", b'"first"') + _head("200 OK", b'"second"'))


class Endpoint:
    """Misbehaves at first, and answers well from then on. `keys` and `attempts`: what each request said."""

    def __init__(self, first: Behaviour) -> None:
        self.keys: list[str] = []
        self.attempts: list[int] = []
        self.first_over = threading.Event()
        self._first: Behaviour | None = first
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/pay"

    def serve(self) -> None:
        while True:
            try:
                one, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(one,), daemon=True).start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _answer(self, one: socket.socket) -> None:
        with closing(one):
            said = b""
            while b"\r\n\r\n" not in said or not said.endswith(b"}"):
                said += one.recv(65536)
            lines = dict(line.lower().split(": ", 1) for line in said.decode().split("\r\n") if ": " in line)
            self.keys.append(lines["idempotency-key"])
            self.attempts.append(int(lines["tracklog-attempt"]))
            behaviour, self._first = self._first, None
            try:
                (behaviour or _says("200 OK", b'"paid"'))(one)
            except OSError:
                return  # the other side has gone
            finally:
                self.first_over.set()


@contextmanager
def misbehaving(first: Behaviour) -> Iterator[Endpoint]:
    endpoint = Endpoint(first)
    serving = threading.Thread(target=endpoint.serve, daemon=True)
    serving.start()
    try:
        yield endpoint
    finally:
        endpoint.close()
        serving.join(10.0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(dispatcher_module, "WAIT_STEP_S", 0.05)
    return new_world("")


async def _outcome(world: World, one: Tool) -> tuple[ResultStatus, str]:
    """What became of a call of the tool, as its model is told. Raises PersonNeeded when somebody has to look."""
    tried = asyncio.Event()

    async def call(context: CallContext, arguments: Mapping[str, Any]) -> Any:
        try:
            return await one.call(context, arguments)
        finally:
            tried.set()

    tools = ToolSet.of(replace(one, call=call))
    model = ScriptedModel(asks(("call-1", one.name)), says("done"))
    timing = Timing(outcome_wait_s=10 * PAST_DOUBT_S)
    running = asyncio.create_task(world.run(model, tools=tools, dispatches=True, timing=timing))
    async with dispatching(new_dispatcher(world, world.new_log(), tools, clock=world.clock)):
        await asyncio.wait_for(tried.wait(), 20.0)
        if one.effect in ("probe", "opaque") and not (await asyncio.wait({running}, timeout=0.2))[0]:
            world.clock.advance(PAST_DOUBT_S)  # now it has landed or never will
        await asyncio.wait_for(running, 20.0)
    (result,) = world.bodies(ev.ToolResult)
    return result.status, result.output.text


def _pay(url: str, effect: str, world: World | None = None, **more: Any) -> Tool:
    if world is not None:
        more["clock"] = world.clock
    if effect == "idempotent":
        more["key_ttl_s"] = 86_400.0
    return http_tool("pay", url, SCHEMA, effect=effect, **{"timeout_s": AMPLE_S, **more})


UNKNOWN = [
    pytest.param(_never, id="never answers"),
    pytest.param(_late, id="answers after the time-out"),
    pytest.param(_resets, id="resets in the middle of its answer"),
    pytest.param(_says("302 Found", b"", "Location: http://127.0.0.1:9/else"), id="redirects"),
    pytest.param(_says("500 Oops"), id="fails"),
]


@pytest.mark.parametrize("first", UNKNOWN)
async def test_an_idempotent_call_is_sent_again_under_its_one_key(world: World, first: Behaviour) -> None:
    with misbehaving(first) as endpoint:
        assert await _outcome(world, _pay(endpoint.url, "idempotent", world, timeout_s=TIMEOUT_S)) == (OK, '"paid"')

    assert len(endpoint.keys) >= 2
    assert len(set(endpoint.keys)) == 1
    assert endpoint.attempts == sorted(set(endpoint.attempts)), "each try has a higher number"


@pytest.mark.parametrize("first", UNKNOWN)
async def test_an_opaque_call_is_asked_about_and_not_sent_again(world: World, first: Behaviour) -> None:
    with misbehaving(first) as endpoint, pytest.raises(PersonNeeded):
        await _outcome(world, _pay(endpoint.url, "opaque", world, timeout_s=TIMEOUT_S))

    assert len(endpoint.keys) == 1
    assert [one.call_id for one in world.bodies(ev.Escalated)] == ["call-1"]


@pytest.mark.parametrize("first", UNKNOWN)
async def test_a_probed_call_is_found_out_about_and_not_sent_again(world: World, first: Behaviour) -> None:
    with misbehaving(first) as endpoint, misbehaving(_says("200 OK", b'"it is there"')) as probe:
        got = await _outcome(world, _pay(endpoint.url, "probe", world, timeout_s=TIMEOUT_S, probe_url=probe.url))

    assert got == (OK, '"it is there"')
    assert len(endpoint.keys) == 1
    assert probe.keys == endpoint.keys


@pytest.mark.parametrize("effect", ["idempotent", "probe", "opaque"])
@pytest.mark.parametrize(
    ("first", "status", "words"),
    [
        pytest.param(_twice, OK, '"first"', id="answers twice"),
        pytest.param(_floods, OK, "[cut: the whole output has", id="floods"),
        pytest.param(_says("200 OK", b'{"error": "no funds"}'), ERROR, "says: no funds", id="200 with an error"),
        pytest.param(_says("400 Bad", b"no such card"), ERROR, "400: no such card", id="refuses"),
        pytest.param(_says("307 Elsewhere", b"", "Location: /else"), ERROR, "answered 307", id="redirects a POST"),
    ],
)
async def test_what_an_endpoint_says_is_the_outcome(
    world: World, effect: str, first: Behaviour, status: ResultStatus, words: str
) -> None:
    with misbehaving(first) as endpoint:
        more = {"probe_url": endpoint.url} if effect == "probe" else {}
        got, said = await _outcome(world, _pay(endpoint.url, effect, world, failed="error", **more))

    assert got is status
    assert words in said
    assert len(endpoint.keys) == 1
    assert not world.bodies(ev.Escalated)


@pytest.mark.parametrize("effect", ["idempotent", "opaque"])
@pytest.mark.parametrize("where", ["http://nobody.invalid/pay", "refused"])
async def test_what_was_surely_not_sent_is_not_in_doubt(
    world: World, effect: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a name that nobody has, or a port where nobody listens
    def nobody(*given: Any, **more: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    if where == "refused":
        with closing(socket.create_server(("127.0.0.1", 0))) as closed:
            where = f"http://127.0.0.1:{closed.getsockname()[1]}/pay"
    else:
        monkeypatch.setattr(socket, "getaddrinfo", nobody)
    # when it is called
    status, said = await _outcome(world, _pay(where, effect, world))
    # then the model is told that nothing was sent, and may call again; nobody is asked
    assert status is ERROR
    assert "cannot be reached, nothing was sent" in said
    assert not world.bodies(ev.Escalated)


def test_a_function_may_say_what_counts_as_failure_and_one_that_cannot_leaves_it_unknown() -> None:
    def failed(answer: Any) -> str:
        return "" if answer["state"] == "done" else f"it is {answer['state']}"

    for body, status in ((b'{"state": "done"}', OK), (b'{"state": "off"}', ERROR), (b"<html>", ResultStatus.UNKNOWN)):
        with misbehaving(_says("200 OK", body)) as endpoint:
            one = _pay(endpoint.url, "opaque", failed=failed)
            context = CallContext("t", "c", "k", epoch=1, attempt=1, deadline_us=2**62)
            ran = asyncio.run(run_tool(one, context, "{}", clock=SystemClock(), output_bytes_max=1000))
        assert ran.status is status


@pytest.mark.parametrize(
    ("status", "body", "holds"),
    [("200 OK", b"", True), ("409 Conflict", b"sold out", "sold out"), ("412 No", b"", False), ("500 Oops", b"", None)],
)
async def test_an_endpoint_may_be_the_precondition(status: str, body: bytes, holds: bool | str | None) -> None:
    with misbehaving(_says(status, body)) as endpoint:
        one = _pay("http://127.0.0.1:9/", "opaque", precondition_url=endpoint.url)
        context = CallContext("t", "c", "k", epoch=1, attempt=1, deadline_us=2**62)
        got, words = await run_precondition(one, context, "{}", timeout_s=5.0)

    assert got is (holds if isinstance(holds, bool | None) else False)
    assert words == holds if isinstance(holds, str) else True
    assert endpoint.keys == ["k"]
