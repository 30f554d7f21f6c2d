"""A replay finds what agent code reads beside its session, at its turn, file and line; and nothing else."""

from __future__ import annotations

import asyncio
import datetime
import glob
import os
import random
import secrets
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from time import time as imported_by_name
from typing import Any

import pytest

from tests.support.ledger import Ledger, ledger
from tests.support.sessions import ScriptedModel, World, asks, new_world, says
from tracklog.producers.divergence import Cause
from tracklog.producers.replay import Report, replay
from tracklog.producers.session import Session

HERE = str(Path(__file__).parent)
READINGS: dict[str, tuple[Callable[[], object], str]] = {
    "time": (lambda: time.time(), "the clock (time.time)"),
    "time imported by name": (lambda: imported_by_name(), "the clock (time.time)"),
    "now": (lambda: datetime.datetime.now(datetime.UTC), "the clock (datetime.now)"),
    "today": (lambda: datetime.date.today(), "the clock (date.today)"),  # noqa: DTZ011
    "random": (lambda: random.random(), "randomness (random.random)"),
    "choice": (lambda: random.choice([1, 2]), "randomness (random.choice)"),
    "unseeded": (lambda: random.Random(), "randomness (random.Random without a seed)"),
    "urandom": (lambda: os.urandom(4), "randomness (os.urandom)"),
    "secret": (lambda: secrets.token_hex(), "randomness (secrets.token_hex)"),
    "uuid": (lambda: uuid.uuid4(), "a random id (uuid.uuid4)"),
    "listing": (lambda: os.listdir(HERE), "a directory listing (os.listdir)"),
    "iterdir": (lambda: list(Path(HERE).iterdir()), "a directory listing (pathlib"),
    "glob": (lambda: glob.glob(f"{HERE}/*"), "a directory listing (glob.glob)"),
    "getenv": (lambda: os.getenv("HOME"), "the environment (os.getenv)"),
    "environ": (lambda: os.environ["PATH"], "the environment (os.environ)"),
    "environ.get": (lambda: os.environ.get("HOME"), "the environment (os.environ)"),
    "socket": (lambda: socket.create_connection(("127.0.0.1", 9), 0.1), "the network (socket."),
    "process": (lambda: subprocess.run(["true"], check=True), "a process (subprocess.Popen)"),
}
HARMLESS: dict[str, Callable[[], object]] = {
    "a generator with a seed": lambda: random.Random(7).choice([1, 2, 3]),
    "a time that is given": lambda: datetime.datetime.fromtimestamp(3, datetime.UTC).isoformat(),
    "an id of a name": lambda: uuid.uuid5(uuid.NAMESPACE_URL, "a"),
    "a variable that is set": lambda: os.environ.__setitem__("TRACKLOG_TEST_OUTSIDE", "1"),
}


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


def model() -> ScriptedModel:
    return ScriptedModel(asks(("c1", "readonly"), ("c2", "local")), asks(("c3", "readonly")), says("done"))


def harness(reading: Callable[[], object] = lambda: None, *, swallows: bool = False) -> Any:
    """Reads at its second turn."""

    async def program(session: Session) -> None:
        messages: list[Any] = [{"role": "user", "content": "book it"}]
        for turn in (1, 2, 3):
            await session.build_context(messages)
            reply = await session.call_model()
            messages.append(reply.message)
            if turn == 2:
                read(reading, swallows=swallows)
            made = await asyncio.gather(*(session.call_tool(call) for call in reply.tool_calls))
            messages += [result.message for result in made]
        await session.end("well")

    return program


def read(reading: Callable[[], object], *, swallows: bool) -> None:
    try:
        reading()
    except Exception:
        if not swallows:
            raise


async def replayed(url: str, program: Any) -> tuple[World, Report]:
    world = new_world(url)
    await world.run(model(), harness())
    return world, await replay(world.events(), program, setup=world.setup(model()))


@pytest.mark.parametrize("name", READINGS)
@pytest.mark.parametrize("swallows", [False, True])
async def test_a_reading_outside_the_session_is_found_at_its_line(
    name: str, swallows: bool, service: tuple[Ledger, str]
) -> None:
    reading, what = READINGS[name]
    _, report = await replayed(service[1], harness(reading, swallows=swallows))
    found = report.divergence
    assert found is not None
    assert (found.turn, found.cause) == (2, Cause.ENVIRONMENT)
    assert found.asked.startswith(what), found
    line = reading.__code__.co_firstlineno
    assert f"outside the session, at {__file__}:{line}" in found.asked


@pytest.mark.parametrize("name", HARMLESS)
async def test_what_comes_out_the_same_each_time_is_no_reading(
    name: str, service: tuple[Ledger, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKLOG_TEST_OUTSIDE", "0")
    _, report = await replayed(service[1], harness(HARMLESS[name]))
    assert report.clean, report.divergence


async def test_replays_side_by_side_are_told_apart(service: tuple[Ledger, str]) -> None:
    world = new_world(service[1])
    await world.run(model(), harness())
    clock, _ = READINGS["time"]
    programs = [harness(), harness(clock), harness(), harness(clock)]
    reports = await asyncio.gather(
        *(replay(world.events(), program, setup=world.setup(model())) for program in programs)
    )
    assert [report.clean for report in reports] == [True, False, True, False]
    assert time.time() > 0, "nothing is watched after a replay"
