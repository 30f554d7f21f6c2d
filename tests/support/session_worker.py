"""An agent in a process of its own, which kills itself at a given moment:

    python -m tests.support.session_worker URL PREFIX BLOBS LEDGER MOMENT

A moment is an append or a tool's effect (before and after it), counted from 1; 0 for none. Prints what became of it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from typing import Any

from tests.support.class_tools import class_tools
from tests.support.sessions import ScriptedModel, asks, built_in, says
from tests.support.writing import on_log
from tracklog.infra.blobs import open_blobs
from tracklog.producers.opening import opened
from tracklog.producers.settle import Timing
from tracklog.producers.setup import Setup
from tracklog.producers.tools import CallContext, ToolSet, tool
from tracklog.schemas.errors import PersonNeeded
from tracklog.schemas.topics import Topics

TRAJECTORY = "trip-1"
CALLS = {"c1": "readonly", "c2": "idempotent", "c3": "probe", "c4": "opaque"}
TIMING = Timing(start_within_s=0.6, grace_s=0.5, settle_wait_s=10.0)
TOOL_TIMEOUT_S = 0.4
MOMENTS = 33
"""Of a run that is not killed."""


class Moments:
    def __init__(self, last: int) -> None:
        self._last = last
        self._count = itertools.count(1)
        self.passed = 0

    def pass_on(self) -> None:
        self.passed = next(self._count)
        if self.passed == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def tools(ledger_url: str, moments: Moments) -> ToolSet:
    @tool(effect="readonly", timeout_s=TOOL_TIMEOUT_S)
    def readonly(what: str) -> str:
        return f"found {what}"

    def pass_on(context: CallContext) -> None:
        moments.pass_on()

    return ToolSet.of(readonly, *class_tools(ledger_url, pass_on, pass_on, timeout_s=TOOL_TIMEOUT_S))


async def main(url: str, prefix: str, blobs: str, ledger_url: str, moment: str) -> str:
    moments = Moments(int(moment))
    model = ScriptedModel(*(asks(call) for call in CALLS.items()), says("done"))
    setup = Setup(
        agent="traveller",
        task="book a trip",
        blobs=open_blobs(blobs),
        model=model,
        tools=tools(ledger_url, moments),
        timing=TIMING,
    )
    async with on_log(url, prefix, create=False) as (log, producer):
        append = log.append

        def counted(*arguments: Any, **_: Any) -> None:
            moments.pass_on()
            append(*arguments)

        log.append = counted  # type: ignore[method-assign]
        try:
            async with opened(producer, TRAJECTORY, log=log, setup=setup, topics=Topics(prefix)) as session:
                await built_in(setup)(session)
        except PersonNeeded:
            return "a person is needed"
    return f"done after {moments.passed} moments, model asked {sorted(model.asked)}"


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(main(*sys.argv[1:])) + "\n")
