"""Agents for workers in processes of their own: `tests.support.worker_agents:traveller`.

LEDGER_URL names the service whose effects are counted; the tool waits before and after each, so that it can be killed.
"""

from __future__ import annotations

import os
import threading

from tests.support.ledger import make_effect
from tests.support.sessions import ScriptedModel, asks, says
from tracklog.producers.tools import CallContext, ToolSet, tool
from tracklog.producers.turn import Agent

CALLS = 6
PAUSE_S = 0.15


def traveller() -> Agent:
    url = os.environ["LEDGER_URL"]

    @tool(effect="idempotent", timeout_s=10, key_ttl_s=86_400)
    def book(what: str, context: CallContext) -> str:
        threading.Event().wait(PAUSE_S)
        receipt = make_effect(
            url, f"{context.trajectory_id}/{context.call_id}".replace("/", "."), context.idempotency_key
        )
        threading.Event().wait(PAUSE_S)
        return receipt

    replies = [asks((f"c{n}", "book"), arguments=f'{{"what":"part {n}"}}') for n in range(CALLS)]
    return Agent("traveller", ScriptedModel(*replies, says("done")), ToolSet.of(book))
