"""HTTP endpoints as tools, against a real server: what is sent, and what each answer comes to."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.loopback import Reply, in_turn, loopback
from tracklog.infra.clock import ManualClock, SystemClock
from tracklog.infra.stack.process import wait_until
from tracklog.producers.http_tool import http_tool
from tracklog.producers.tool_run import Ran, run_probe, run_tool
from tracklog.producers.tools import CallContext, ProbeAnswer, Tool
from tracklog.schemas.errors import InvalidTool
from tracklog.schemas.values import ResultStatus

SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
CONTEXT = CallContext("t", "c1", "t/c1", epoch=3, attempt=2, deadline_us=2**62)
ARGUMENTS = '{"amount": 7}'
LIMIT = 64 * 1024
WAIT_S = 60.0


def made(url: str, effect: str = "opaque", **more: Any) -> Tool:
    if effect == "idempotent":
        more.setdefault("key_ttl_s", 60.0)
    return http_tool("charge", url, SCHEMA, effect=effect, **{"timeout_s": WAIT_S, **more})


async def ran(one: Tool, arguments: str = ARGUMENTS, context: CallContext = CONTEXT) -> Ran:
    return await run_tool(one, context, arguments, clock=SystemClock(), output_bytes_max=LIMIT)


async def test_a_call_is_one_post_with_key_epoch_attempt_and_deadline() -> None:
    with loopback(in_turn(Reply(body='{"paid": "é"}'.encode()))) as server:
        pay = made(f"{server.url}/v1/charge?live=1", headers={"Authorization": "Bearer x"})

        got = await ran(pay)

        assert (got.status, got.output) == (ResultStatus.OK, '{"paid": "é"}')
        (asked,) = server.asked
        assert asked.path == "/v1/charge?live=1"
        assert asked.json == {"amount": 7}
        assert asked.headers["idempotency-key"] == "t/c1"
        assert asked.headers["tracklog-epoch"] == "3"
        assert asked.headers["tracklog-attempt"] == "2"
        assert asked.headers["tracklog-deadline"] == str(2**62)
        assert asked.headers["content-type"] == "application/json"
        assert asked.headers["authorization"] == "Bearer x"


async def test_a_key_of_any_text_is_sent_and_two_never_meet() -> None:
    with loopback(in_turn(Reply())) as server:
        for key in ("fährt/1", "f%C3%A4hrt/1", "a\r\nb: c"):
            assert (await ran(made(server.url), context=replace(CONTEXT, idempotency_key=key))).known

        sent = [asked.headers["idempotency-key"] for asked in server.asked]
    assert sent == ["f%C3%A4hrt/1", "f%25C3%25A4hrt/1", "a%0D%0Ab: c"]


async def test_arguments_that_do_not_fit_are_not_sent() -> None:
    with loopback(in_turn(Reply())) as server:
        got = await ran(made(server.url), '{"amount": "7"}')

        assert got.status is ResultStatus.ERROR
        assert 'amount: is "7", not of type integer' in got.output
        assert server.asked == []


@pytest.mark.parametrize(
    ("reply", "effect", "status"),
    [
        (Reply(200, b"plain words", "text/plain"), "opaque", ResultStatus.OK),
        (Reply(204, b""), "opaque", ResultStatus.OK),
        (Reply(200, "é".encode("latin-1"), "text/plain; charset=latin-1"), "opaque", ResultStatus.OK),
        (Reply(200, "é".encode(), "text/plain; charset=klingon"), "opaque", ResultStatus.OK),
        (Reply(200, b"\xff\xfe", "application/octet-stream"), "opaque", ResultStatus.OK),
        (Reply(400, b"no such card"), "opaque", ResultStatus.ERROR),
        (Reply(402), "idempotent", ResultStatus.ERROR),
        (Reply(404), "opaque", ResultStatus.ERROR),
        (Reply(429), "opaque", ResultStatus.ERROR),
        (Reply(409), "opaque", ResultStatus.ERROR),
        (Reply(409), "idempotent", ResultStatus.UNKNOWN),
        (Reply(307, headers={"Location": "/other"}), "opaque", ResultStatus.ERROR),
        (Reply(303, headers={"Location": "/other"}), "opaque", ResultStatus.UNKNOWN),
        (Reply(303, headers={"Location": "/other"}), "readonly", ResultStatus.ERROR),
        (Reply(500), "opaque", ResultStatus.UNKNOWN),
        (Reply(502), "idempotent", ResultStatus.UNKNOWN),
        (Reply(500), "readonly", ResultStatus.ERROR),
        (Reply(lost=True), "opaque", ResultStatus.UNKNOWN),
        (Reply(lost=True), "readonly", ResultStatus.ERROR),
        (Reply(200, b"half", length=8), "opaque", ResultStatus.UNKNOWN),
    ],
)
async def test_each_answer_comes_to_a_result(reply: Reply, effect: str, status: ResultStatus) -> None:
    with loopback(in_turn(reply)) as server:
        got = await ran(made(server.url, effect))

        assert got.status is status
        assert len(server.asked) == 1, "redirects are not followed, and nothing is sent again"


async def test_a_conflict_on_the_first_try_is_the_service_s_own_answer() -> None:
    with loopback(in_turn(Reply(409, b"seat taken"))) as server:
        got = await ran(made(server.url, "idempotent"), context=replace(CONTEXT, attempt=1))

        assert got == replace(got, status=ResultStatus.ERROR)
        assert "409: seat taken" in got.output


async def test_a_service_may_name_statuses_by_which_it_did_nothing() -> None:
    with loopback(in_turn(Reply(503))) as server:
        assert (await ran(made(server.url, nothing_done={503}))).status is ResultStatus.ERROR
        assert (await ran(made(server.url))).status is ResultStatus.UNKNOWN


async def test_no_answer_in_time_is_a_time_out_and_the_thread_is_woken() -> None:
    hold = threading.Event()
    with loopback(in_turn(Reply(hold=hold))) as server:
        got = await ran(made(server.url, timeout_s=0.2))

        assert got.status is ResultStatus.TIMEOUT
        assert not got.known
        await woken()
        hold.set()


async def test_a_cancelled_call_passes_its_cancellation_on_and_wakes_its_thread() -> None:
    hold = threading.Event()
    with loopback(in_turn(Reply(hold=hold))) as server:
        running = asyncio.create_task(ran(made(server.url)))
        await asyncio.to_thread(server.wait_for_request)

        running.cancel()

        with pytest.raises(asyncio.CancelledError):
            await running
        await woken()
        hold.set()


async def woken() -> None:
    """Until no thread of a tool is left."""
    assert await asyncio.to_thread(wait_until, no_thread, WAIT_S)


def no_thread() -> bool:
    return all(one.name != "tracklog-tool" for one in threading.enumerate())


async def test_a_service_that_is_not_there_did_surely_nothing() -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    got = await ran(made(f"http://127.0.0.1:{port}"))

    assert got.status is ResultStatus.ERROR
    assert "nothing was sent" in got.output


async def test_the_deadline_is_checked_after_connecting_as_the_last_thing_before_sending() -> None:
    class Slow(ManualClock):
        """Time passes between one look and the next, as it does while a connection is made."""

        def now_us(self) -> int:
            self.advance(10.0)
            return super().now_us()

    clock = Slow(now_us=0)
    with loopback(in_turn(Reply())) as server:
        pay = made(server.url, clock=clock)

        due = replace(CONTEXT, deadline_us=15_000_000)
        got = await run_tool(pay, due, ARGUMENTS, clock=clock, output_bytes_max=LIMIT)

        assert got.status is ResultStatus.EXPIRED
        assert server.asked == []


async def test_a_large_answer_is_cut() -> None:
    with loopback(in_turn(Reply(body=b"x" * 50_000_000, content_type="text/plain"))) as server:
        got = await ran(made(server.url))

        assert got.status is ResultStatus.OK
        assert len(got.output.encode()) <= LIMIT
        assert "[cut:" in got.output


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1 and its key, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    file = tmp_path / "own.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "-", "-out", "-"]
    made = subprocess.run(command, capture_output=True, check=True, timeout=WAIT_S)
    file.write_bytes(made.stdout)
    return file


async def test_a_service_is_verified_before_anything_is_sent(certificate: Path) -> None:
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate))
    with loopback(in_turn(Reply(body=b"paid")), tls=own) as server:
        trusted = await ran(made(server.url, tls=trusting))
        unknown = await ran(made(server.url))

        assert (trusted.status, trusted.output) == (ResultStatus.OK, "paid")
        assert unknown.status is ResultStatus.ERROR
        assert "nothing was sent" in unknown.output
        assert len(server.asked) == 1


async def test_a_cancelled_call_over_tls_wakes_its_thread_too(certificate: Path) -> None:
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate)
    hold = threading.Event()
    with loopback(in_turn(Reply(hold=hold)), tls=own) as server:
        pay = made(server.url, tls=ssl.create_default_context(cafile=str(certificate)))
        running = asyncio.create_task(ran(pay))
        await asyncio.to_thread(server.wait_for_request)

        running.cancel()

        with pytest.raises(asyncio.CancelledError):
            await running
        await woken()
        hold.set()


@pytest.fixture
def mute() -> Iterator[str]:
    """A service that takes connections and never says a word: a TLS handshake with it does not end."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"


async def test_a_connection_that_is_not_made_in_half_the_time_is_known_to_have_sent_nothing(mute: str) -> None:
    got = await ran(made(mute, timeout_s=0.4))

    assert got.status is ResultStatus.ERROR
    assert "nothing was sent" in got.output
    assert got.duration_ms < 400


async def test_a_call_that_is_given_up_while_it_connects_ends_its_thread_with_the_connecting(mute: str) -> None:
    running = asyncio.create_task(ran(made(mute, timeout_s=2.0)))
    assert await asyncio.to_thread(wait_until, lambda: not no_thread(), WAIT_S)

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    await woken()


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (Reply(200, b"receipt 7"), ProbeAnswer.HAPPENED),
        (Reply(404), ProbeAnswer.ABSENT),
        (Reply(500), ProbeAnswer.UNKNOWN),
        (Reply(403), ProbeAnswer.UNKNOWN),
        (Reply(lost=True), ProbeAnswer.UNKNOWN),
    ],
)
async def test_a_probe_asks_with_the_same_key_even_after_the_deadline(reply: Reply, answer: ProbeAnswer) -> None:
    with loopback(in_turn(reply)) as server:
        pay = made(f"{server.url}/charge", "probe", probe_url=f"{server.url}/find")

        got = await run_probe(pay, replace(CONTEXT, deadline_us=1), ARGUMENTS, output_bytes_max=LIMIT)

        assert got.answer is answer
        assert [(asked.path, asked.json, asked.headers["idempotency-key"]) for asked in server.asked] == [
            ("/find", {"amount": 7}, "t/c1")
        ]


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("ftp://host/", {}),
        ("host/path", {}),
        ("http://", {}),
        ("http://host:99999/", {}),
        ("http://host/a b", {}),
        ("http://host/a\r\nX: y", {}),
        ("http://user:secret@host/", {}),
        ("http://host/", {"headers": {"Idempotency-Key": "mine"}}),
        ("http://host/", {"headers": {"Tracklog-Epoch": "9"}}),
        ("http://host/", {"headers": {"X": "a\r\nY: b"}}),
        ("http://host/", {"headers": {"X Y": "a"}}),
        ("http://host/", {"effect": "idempotent", "key_ttl_s": None}),
        ("http://host/", {"effect": "probe"}),
        ("http://host/", {"effect": "harmless"}),
        ("http://host/", {"probe_url": "nowhere"}),
    ],
)
def test_an_endpoint_that_cannot_be_called_is_refused_when_it_is_declared(url: str, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidTool) as refused:
        http_tool("charge", url, SCHEMA, **more)

    assert "charge" in str(refused.value)
    assert "secret@" not in str(refused.value)
