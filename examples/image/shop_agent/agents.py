"""The clerk quotes and orders. Quotes are read where the agent runs; orders are placed by dispatchers, large ones only
after somebody has approved them. The model is scripted, so that no key is needed: it asks for a quote, for as many
orders as the task has numbers (pieces of each), and tells what came of it.

    tracklog worker shop_agent.agents:clerk shop_agent.agents:night
    tracklog dispatch shop_agent.agents
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from tracklog.producers import Agent, CallContext, Session, ToolSet, tool
from tracklog.producers.models import ModelAnswer, ModelRequest, calls_of
from tracklog.producers.policy_file import load_policy

SHOP_S: Final = 10


@tool(effect="readonly", timeout_s=5, run="inline")
def quote(pieces: int) -> str:
    """What so many pieces cost."""
    return f"{pieces * 7} EUR"


@tool(effect="idempotent", timeout_s=SHOP_S, key_ttl_s=86_400, run="dispatch")
def place_order(pieces: int, context: CallContext) -> str:
    """Orders so many pieces at the shop that SHOP_URL names; the shop knows a key that it has seen."""
    call = f"{context.trajectory_id}.{context.call_id}"
    data = json.dumps({"call_id": call, "key": context.idempotency_key}).encode()
    with urlopen(Request(f"{os.environ['SHOP_URL']}/effect", data=data, method="POST"), timeout=SHOP_S) as answer:
        return str(json.load(answer)["receipt"])


class Script:
    """Answers by how many replies there were before, so a resumed run goes on where it was."""

    name = "scripted"

    async def reply(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelAnswer:
        task = next(str(one["content"]) for one in request.messages if one["role"] == "user")
        orders = [int(line) for line in task.split()]
        number = request.replies_before or 0
        if number == 0:
            return _asks("quote", "quote-1", sum(orders))
        if number <= len(orders):
            return _asks("place_order", f"order-{number}", orders[number - 1])
        return ModelAnswer(message={"role": "assistant", "content": f"{len(orders)} ordered"}, stop_reason="stop")


def _asks(name: str, call_id: str, pieces: int) -> ModelAnswer:
    function = {"name": name, "arguments": json.dumps({"pieces": pieces})}
    raw = [{"id": call_id, "type": "function", "function": function}]
    message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": raw}
    return ModelAnswer(message=message, tool_calls=calls_of(message), stop_reason="tool_calls")


def clerk() -> Agent:
    policy = load_policy(Path(__file__).with_name("policy.toml"))
    return Agent("clerk", Script(), ToolSet.of(quote, place_order), policy=policy)


async def wake(session: Session, task: str) -> str:
    """Sleeps as many seconds as the task says, which takes a router, and says so."""
    await session.sleep(float(task))
    return f"slept {task} s"


night = Agent("night", None, program=wake)
