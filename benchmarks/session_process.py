"""One process of the session benchmarks: works on a run until its last turn and dies there, or goes on with it.

Prints what it cost as JSON. A process of its own, so that what is cold is cold: nothing but imports came before.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from benchmarks.projection_process import peak_mb
from tracklog.infra.blobs import open_blobs
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.collector import collect_rarely
from tracklog.infra.log.open import open_log
from tracklog.producers.models import ModelAnswer, ModelRequest, calls_of
from tracklog.producers.opening import opened
from tracklog.producers.producer import EventProducer
from tracklog.producers.tools import Tool, ToolSet, tool
from tracklog.producers.turn import Agent, Compaction, run_turns
from tracklog.producers.writer import TrajectoryWriter
from tracklog.schemas.topics import Topics, topic_specs

TRAJECTORY = "bench"
TASK = "look at everything"


@dataclass(frozen=True)
class Work:
    """`turns`, which have `turn_bytes` of messages on average: a reply that asks for one call, and its result.

    `dies`: at the model call after the last turn the process is gone, and the run is left as it is.
    """

    folder: str
    turns: int
    turn_bytes: int
    from_checkpoint: bool = False
    compacts: bool = False
    dies: bool = False


@dataclass
class Seen:
    """What was measured."""

    opening_s: float = 0.0
    opened_s: float = 0.0
    working_s: float = 0.0
    barriers: int = 0
    payload_bytes: int = 0
    begun_s: float = field(default_factory=time.perf_counter)

    def live(self) -> None:
        """The first model call: what was recorded has been gone through."""
        if not self.opened_s:
            self.opened_s = time.perf_counter() - self.opening_s

    def text(self) -> str:
        self.working_s = time.perf_counter() - self.opening_s
        return orjson.dumps({**vars(self), "peak_mb": peak_mb()}).decode()


class Scripted:
    """Asks for one call a turn, then says that it is done."""

    name = "scripted"

    def __init__(self, work: Work, seen: Seen) -> None:
        self._work = work
        self._seen = seen

    async def reply(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelAnswer:
        turn = request.replies_before or 0
        self._seen.live()
        if turn < self._work.turns:
            message = asking(turn)
            self._seen.payload_bytes += bytes_of(turn, self._work.turn_bytes)
            return ModelAnswer(message=message, tool_calls=calls_of(message), stop_reason="tool_calls", served="s")
        if self._work.dies:
            print(self._seen.text(), flush=True)
            os._exit(0)
        return ModelAnswer(message={"role": "assistant", "content": "done"}, stop_reason="stop", served="s")


def bytes_of(turn: int, average: int) -> int:
    """No two turns in a row are of one size: in a file of pages, rows of one size fit by chance well or badly."""
    return average * 3 // 4 + turn * 37 % (average // 2)


def asking(turn: int) -> dict[str, Any]:
    call = {"name": "look", "arguments": f'{{"turn":{turn}}}'}
    calls = [{"id": f"call-{turn}", "type": "function", "function": call}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(turn: int, average: int) -> dict[str, Any]:
    """The result of a call: it fills the messages of the turn up."""
    message = {"role": "tool", "tool_call_id": f"call-{turn}", "content": ""}
    missing = bytes_of(turn, average) - len(orjson.dumps(asking(turn))) - len(orjson.dumps(message))
    return {**message, "content": "x" * missing}


def looking(turn_bytes: int) -> Tool:
    @tool(effect="readonly")
    def look(turn: int) -> str:
        return str(result(turn, turn_bytes)["content"])

    return look


async def summarize(messages: Sequence[Any]) -> str:
    return f"{len(messages)} messages, in which everything was looked at"


async def run(work: Work, seen: Seen) -> None:
    log = open_log(f"sqlite:{work.folder}/log.db")
    specs = topic_specs(Topics(), partitions=12, replication_factor=1, min_insync_replicas=1, max_message_bytes=1 << 20)
    log.create(specs)
    tools, model = ToolSet.of(looking(work.turn_bytes)), Scripted(work, seen)
    compaction = Compaction(summarize) if work.compacts else None
    agent = Agent("bench", model, tools, prompt="be kind", turns_max=work.turns + 2, compaction=compaction)
    async with EventProducer(log, topics=Topics(), clock=SystemClock(), entropy=SystemEntropy()) as producer:
        setup = agent.setup(TASK, open_blobs(f"{work.folder}/blobs"))
        seen.opening_s = time.perf_counter()
        async with opened(producer, TRAJECTORY, log=log, setup=setup, from_checkpoint=work.from_checkpoint) as session:
            await run_turns(session, agent, TASK)
    log.close()
    print(seen.text())


def count_barriers(seen: Seen) -> None:
    barrier = TrajectoryWriter.barrier

    async def counted(self: TrajectoryWriter, *arguments: Any) -> None:
        seen.barriers += 1
        await barrier(self, *arguments)

    TrajectoryWriter.barrier = counted  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    collect_rarely()  # as a worker does
    asked = Work(**orjson.loads(sys.argv[1]))
    Path(asked.folder).mkdir(exist_ok=True)
    measured = Seen()
    count_barriers(measured)
    asyncio.run(run(asked, measured))
