"""The 120 recorded airline runs as work to be done again: their agents, their users, and what their calls came to.

An agent for each run, the built-in one: its model answers from the recording (and raises when it is shown anything else
than was recorded), its tools are HTTP endpoints of `airline_service`. What the recorded user said comes by the inbox
(`Agent(talks_until=STOP)`), so a run is let go of whenever its user is to speak. A recording that does not end with its
user's STOP ends in the middle: it is given one more reply, CLOSING, and its user says STOP to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import orjson

from tracklog.producers.data import shipped_runs
from tracklog.producers.http_tool import http_tool
from tracklog.producers.importers.effects import AIRLINE_READS
from tracklog.producers.importers.run import Outcome, Reply, Run, Spoken
from tracklog.producers.model_recorded import RecordedModel
from tracklog.producers.models import ModelAnswer, ModelRequest, OnToken
from tracklog.producers.tools import Tool, ToolSet
from tracklog.producers.turn import Agent
from tracklog.schemas.errors import RecordingEnded
from tracklog.schemas.values import Effect

STOP: Final = "###STOP###"
CLOSING: Final = "(the recording ends here)"
TOOL_TIMEOUT_S: Final = 10.0
KEY_TTL_S: Final = 86_400.0
NEVER: Final = "never will"
"""In what a model is told of a call that surely did not happen."""

WRITES: Final[Mapping[str, Effect]] = {
    "book_reservation": Effect.IDEMPOTENT,
    "cancel_reservation": Effect.IDEMPOTENT,
    "update_reservation_flights": Effect.PROBE,
    "send_certificate": Effect.OPAQUE,
    "transfer_to_human_agents": Effect.OPAQUE,
    "update_reservation_baggages": Effect.OPAQUE,
    "update_reservation_passengers": Effect.OPAQUE,
}
"""The tools that write, and the class of each where all classes are wanted."""

Call = tuple[str, str, str]
"""A recorded call: its run, its tool, its arguments as canonical JSON."""


def canonical(arguments: str | bytes) -> str:
    return orjson.dumps(orjson.loads(arguments), option=orjson.OPT_SORT_KEYS).decode()


@dataclass(frozen=True)
class Recording:
    """One run. `said` are the texts of its user after the task; `seen` what its model had been shown in the end."""

    run: Run
    said: tuple[str, ...]
    seen: tuple[str | None, ...]
    replies: tuple[ModelAnswer, ...]
    calls: tuple[tuple[Call, str], ...]

    @property
    def id(self) -> str:
        return self.run.trajectory_id

    def says(self, number: int) -> str:
        """What its user says to the reply without calls of this number."""
        return self.said[number] if number < len(self.said) else STOP


def _recording(run: Run) -> Recording:
    spoken = [step.content.text for step in run.steps if isinstance(step, Spoken)]
    outputs = {step.call_id: step.content.text for step in run.steps if isinstance(step, Outcome)}
    seen: list[str | None] = []
    replies, calls = [], []
    for step in run.steps:
        if isinstance(step, Reply):
            message = orjson.loads(step.message)
            replies.append(ModelAnswer(message=message, tool_calls=step.calls, usage=step.usage))
            seen.append(message.get("content"))
            calls += [((run.trajectory_id, c.tool, canonical(c.arguments)), outputs[c.call_id]) for c in step.calls]
        else:
            seen.append(step.content.text)
    return Recording(run, tuple(spoken[1:]), tuple(seen), tuple(replies), tuple(calls))


@cache
def recordings() -> tuple[Recording, ...]:
    runs = (run for run in shipped_runs() if isinstance(run, Run) and run.dataset == "airline")
    return tuple(_recording(run) for run in runs)


def outputs_of(recorded: Iterable[Recording]) -> dict[Call, list[str]]:
    """What each call came to; a call that was made twice has two outputs, in order."""
    outputs = defaultdict(list)
    for one in recorded:
        for call, output in one.calls:
            outputs[call].append(output)
    return dict(outputs)


class CheckedModel:
    """The recorded replies in order, for a model that was shown what was recorded, and CLOSING after the last."""

    def __init__(self, recording: Recording) -> None:
        self._model = RecordedModel(recording.replies, name=recording.run.model)
        self._recording = recording

    @property
    def name(self) -> str:
        return self._model.name

    async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
        number = request.replies_before
        shown = [one.get("content") for one in request.messages if one["role"] != "system"]
        for at, (was, now) in enumerate(zip(self._recording.seen, shown, strict=False)):
            if was != now and NEVER not in str(now):
                raise RecordingEnded(f"message {at} of {self._recording.id} is {now!r}, recorded is {was!r}")
        if number == len(self._recording.replies):
            return ModelAnswer(message={"role": "assistant", "content": CLOSING})
        return await self._model.reply(request, on_token=on_token)


def agent_of(recording: Recording, service_url: str, effects: Mapping[str, Effect]) -> Agent:
    """Its agent; `effects` has the classes of the tools that write."""
    prompt = recording.run.prompt
    tools = [_tool(name, Effect.READONLY, recording.id, service_url) for name in AIRLINE_READS]
    tools += [_tool(name, effect, recording.id, service_url) for name, effect in effects.items()]
    return Agent(
        recording.id,
        CheckedModel(recording),
        ToolSet.of(*tools),
        prompt=None if prompt is None else prompt.content.text,
        talks_until=STOP,
    )


def _tool(name: str, effect: Effect, run: str, service_url: str) -> Tool:
    more: dict[str, Any] = {}
    if effect is Effect.IDEMPOTENT:
        more["key_ttl_s"] = KEY_TTL_S
    if effect is Effect.PROBE:
        more["probe_url"] = f"{service_url}/probed/{run}/{name}"
    where = f"{service_url}/{effect.value}/{run}/{name}"
    return http_tool(name, where, {"type": "object"}, effect=effect, timeout_s=TOOL_TIMEOUT_S, **more)


def effects_chosen(words: str) -> Mapping[str, Effect]:
    """`mixed`: the classes of WRITES; else the one class that all of them have."""
    return WRITES if words == "mixed" else dict.fromkeys(WRITES, Effect(words))


def chosen(recorded: Sequence[Recording], ids: Iterable[str]) -> list[Recording]:
    wanted = set(ids)
    return [one for one in recorded if one.id in wanted]
