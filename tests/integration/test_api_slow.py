"""Clients that read nothing: they are let go of, take a bounded place, and hold up nobody."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.serving import Api, serving, token
from tests.support.sessions import TRAJECTORY, ScriptedModel, says
from tracklog.consumers.api import relay, streams
from tracklog.infra.clock import SystemClock
from tracklog.infra.token_relay import Heard, append
from tracklog.producers.session import Session

WAIT_S: Final = 30.0
TURNS: Final = 60
PATIENCE_S: Final = 2.0


@pytest.fixture
def api(redis_db: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    for module in (streams, relay):
        monkeypatch.setattr(module, "SEND_S_MAX", PATIENCE_S)
    with serving(redis_db, tmp_path) as served:
        yield served


@contextmanager
def never_reads(api: Api, name: str) -> Iterator[socket.socket]:
    """Asks for a stream, and takes nothing of it."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", api.port))
        head = f"GET /trajectories/{TRAJECTORY}/{name} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token('viewer')}"
        client.sendall(f"{head}\r\n\r\n".encode())
        yield client


async def until_streams(api: Api, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while api.services.streams != count:  # noqa: ASYNC110 - the server is in another thread
            await asyncio.sleep(0.02)


async def long_run(api: Api) -> None:
    """More than the buffers between two processes hold, and not at its end."""

    async def program(session: Session) -> None:
        for number in range(TURNS):
            await session.build_context([{"role": "user", "content": f"{number} {'x' * 60_000}"}])
            await session.call_model()

    await api.world.run(ScriptedModel(*[says("y" * 60_000)] * TURNS), program, clock=SystemClock())


async def test_clients_that_never_read_are_let_go_of_and_hold_up_nobody(api: Api) -> None:
    await long_run(api)
    with never_reads(api, "stream"), never_reads(api, "tokens"):
        await until_streams(api, 2)
        # given that no more streams may be open, others are told so, and served otherwise
        assert (await asyncio.to_thread(api.ask, "GET", f"/trajectories/{TRAJECTORY}/stream"))[0] == 503
        assert (await asyncio.to_thread(api.ask, "GET", f"/trajectories/{TRAJECTORY}/events?limit=1"))[0] == 200
        # when both are sent more than the buffers in between hold, their places are free in the end
        said = [(TRAJECTORY, Heard(TURNS, "attempt", "z" * 4096)) for _ in range(400)]
        async with asyncio.timeout(WAIT_S):
            while api.services.streams:
                await asyncio.to_thread(append, api.services.client, "tracklog", said)


def test_what_waits_for_a_slow_listener_is_bounded_and_it_is_told_what_it_lost() -> None:
    ear = relay.Ear(TRAJECTORY)
    ear.hear([Heard(0, "a", str(number)) for number in range(5 * relay.WAITING_MAX)])
    assert (len(ear.heard), ear.lost) == (relay.WAITING_MAX, True)
    assert ear.heard[-1].text == str(5 * relay.WAITING_MAX - 1)
