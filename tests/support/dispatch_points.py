"""Named points of a dispatched call at which a dispatcher stops dead, beside those of its appends (`points`).

`ledger.read` is before each reading of the ledger; `bid.read` after a bid was read back, `events.read` after the events
were read to their end, `send` before the last look at the deadline; `effect.start` and `effect.end` are around the
request to the service that counts effects, `probe.start` and `probe.end` around a probe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.support.points import STAGES, Points, watch_appends
from tracklog.consumers.dispatch import attempt
from tracklog.consumers.dispatch.attempt import OpenCall
from tracklog.consumers.dispatch.dispatcher import Dispatcher
from tracklog.consumers.dispatch.slots import Row
from tracklog.infra.log.port import Log
from tracklog.producers.tool_run import Ran
from tracklog.producers.tools import CallContext, Probed, Tool, ToolSet
from tracklog.schemas.ledger import Attempt, LedgerBody

SLOT_POINTS = (*(f"{name}.{stage}" for name in ("Attempt", "Done") for stage in STAGES), "bid.read")
"""Of what only a call that takes slots has: readonly takes none."""
DISPATCH_POINTS = (
    "ledger.read",
    *SLOT_POINTS,
    "events.read",
    "send",
    "effect.start",
    "effect.end",
    *(f"Outcome.{stage}" for stage in STAGES),
)


def watch_dispatch(log: Log, dispatcher: Dispatcher, points: Points) -> None:
    """Puts the points around what this process does for a call."""
    watch_appends(log, points)
    row, enter, is_open, run = dispatcher.row, dispatcher.enter, dispatcher.is_open, vars(attempt)["run_tool"]

    async def read(call: OpenCall) -> Row:
        points.at(call.trajectory_id, "ledger.read")
        return await row(call)

    async def entered(call: OpenCall, slot: int, body: LedgerBody) -> Row:
        found = await enter(call, slot, body)
        if isinstance(body, Attempt):
            points.at(call.trajectory_id, "bid.read")
        return found

    async def is_still_open(call: OpenCall) -> bool:
        found = await is_open(call)
        points.at(call.trajectory_id, "events.read")
        return found

    async def sent(tool: Tool, context: CallContext, *arguments: Any, **named: Any) -> Ran:
        points.at(context.trajectory_id, "send")
        ran: Ran = await run(tool, context, *arguments, **named)
        return ran

    dispatcher.row = read  # type: ignore[method-assign]
    dispatcher.enter = entered  # type: ignore[method-assign]
    dispatcher.is_open = is_still_open  # type: ignore[method-assign]
    vars(attempt)["run_tool"] = sent


def probing(tools: ToolSet, points: Points) -> ToolSet:
    """The same tools, with points around their probes."""
    return ToolSet.of(*(_probing(one, points) for one in tools))


def _probing(tool: Tool, points: Points) -> Tool:
    probe = tool.probe
    if probe is None:
        return tool

    async def probed(context: CallContext, arguments: Mapping[str, Any]) -> Probed:
        points.at(context.trajectory_id, "probe.start")
        found = await probe(context, arguments)
        points.at(context.trajectory_id, "probe.end")
        return found

    return replace(tool, probe=probed)
