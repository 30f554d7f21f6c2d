"""Agents for workers in processes of their own: `tests.support.worker_agents:traveller`.

LEDGER_URL names the service whose effects are counted; the tool waits before and after each, so that it can be killed.
"""

from __future__ import annotations

import os
import threading
import time

from tests.support.ledger import make_effect
from tests.support.sessions import ScriptedModel, asks, says
from tracklog.infra.clock import SystemClock
from tracklog.producers import Session
from tracklog.producers.tools import CallContext, Tool, ToolSet, tool
from tracklog.producers.turn import Agent

CALLS = 6
PAUSE_S = 0.15
SET_BACK_US = 3_600 * 1_000_000


def booking() -> Tool:
    url = os.environ["LEDGER_URL"]

    @tool(effect="idempotent", timeout_s=10, key_ttl_s=86_400)
    def book(what: str, context: CallContext) -> str:
        threading.Event().wait(PAUSE_S)
        receipt = make_effect(
            url, f"{context.trajectory_id}/{context.call_id}".replace("/", "."), context.idempotency_key
        )
        threading.Event().wait(PAUSE_S)
        return receipt

    return book


def traveller() -> Agent:
    replies = [asks((f"c{n}", "book"), arguments=f'{{"what":"part {n}"}}') for n in range(CALLS)]
    return Agent("traveller", ScriptedModel(*replies, says("done")), ToolSet.of(booking()))


def scribe() -> Agent:
    """Adds a line to a file of its workspace with each call, and is told the whole of it."""

    @tool(effect="local", timeout_s=10)
    def write(what: str, context: CallContext) -> str:
        assert context.workspace is not None
        threading.Event().wait(PAUSE_S)
        notes = context.workspace / "notes"
        notes.write_text((notes.read_text() if notes.exists() else "") + f"{context.call_id}\n")
        threading.Event().wait(PAUSE_S)
        return notes.read_text()

    replies = [asks((f"c{n}", "write")) for n in range(CALLS)]
    return Agent("scribe", ScriptedModel(*replies, says("done")), ToolSet.of(write))


async def _said_later(session: Session, task: str) -> str:
    await session.sleep(PAUSE_S)
    return task


echo = Agent("echo", None, program=_said_later)
"""Sleeps, which takes a router, and gives its task back."""


def set_back() -> Agent:
    """The traveller, whose second call sets the wall clock of its process back by an hour."""

    @tool(effect="readonly")
    def jump() -> str:
        _set_back()
        return "an hour ago"

    replies = [asks((f"c{n}", "book"), arguments=f'{{"what":"part {n}"}}') for n in range(CALLS)]
    replies[1:1] = [asks(("jump", "jump"), arguments="{}")]
    return Agent("traveller", ScriptedModel(*replies, says("done")), ToolSet.of(booking(), jump))


def _set_back() -> None:
    SystemClock.now_us = lambda self: time.time_ns() // 1000 - SET_BACK_US  # type: ignore[method-assign]
