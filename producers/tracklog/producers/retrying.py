"""Doing a call again that may have happened, because a person says so (DESIGN §8: who does takes the risk knowingly).

The word is taken by a second intent of the same call, with its key and a new deadline. Whoever took it performs the
call, or a dispatcher does. When that one dies before there is an outcome, the call is in doubt as after any intent: it
is not done a third time without another word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from tracklog.infra.log.port import Log
from tracklog.producers.history import read_history
from tracklog.producers.settle import Settling
from tracklog.schemas import events as ev
from tracklog.schemas.state import Call
from tracklog.schemas.values import Place

__all__ = ["EXT_RETRY", "Again", "Retrying", "Second"]

EXT_RETRY: Final = "retry"
"""In `ext` of a Settlement: the call is to be done again; what else it says does not count."""


class Second(NamedTuple):
    intent: ev.ToolIntent
    ext: Mapping[str, str]


Again = Callable[[Call], Awaitable[Second | str]]
"""The second intent of an open call, or why there is none."""


class Retrying:
    """Of one session."""

    def __init__(self, log: Log, topic: str, trajectory_id: str, settling: Settling) -> None:
        self._log = log
        self._topic = topic
        self._trajectory_id = trajectory_id
        self._settling = settling

    async def __call__(self, call: Call) -> Second | str:
        """Scans the trajectory's partition: a person's word is rare."""
        _, accepted = await asyncio.to_thread(read_history, self._log, self._topic, self._trajectory_id)
        event = next(event for event, _ in accepted if event.envelope.seq == call.seq)
        intent = event.body
        assert isinstance(intent, ev.ToolIntent)
        until_us = self._settling.dispatch_not_after()
        if intent.place is Place.INLINE:
            tool = self._settling.as_intended(intent)
            if tool is None:
                return f"tool {intent.tool} is not as it was when the call was intended"
            until_us = self._settling.not_after(tool)
        second = intent.model_copy(update={"not_after": until_us, "request_hash": None})
        return Second(second, event.envelope.ext)
