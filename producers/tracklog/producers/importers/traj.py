"""Reads SWE-agent's `.traj` files: one JSON object, messages under `history`, steps under `trajectory`.

Both message forms: with function calling (`tool_calls`, answered by `tool` messages with `tool_call_ids`),
and older, where the action is part of the reply's text, parsed into the message's `action`, and the next
user message is what came back. Messages marked `is_demo` show how to work: nobody made those calls, so they
are only said. A file may hold `history` alone; `trajectory` adds how long actions took, and the result of
the last one, which no message carries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from pydantic import ValidationError

from tracklog.producers.importers.effects import SWE_AGENT, SWE_AGENT_COMMANDS
from tracklog.producers.importers.record import (
    Record,
    asked_calls,
    bad_run,
    labels_of,
    load_record,
    message_list,
    recording_of,
    source_of,
    stem,
)
from tracklog.producers.importers.run import BadRun, Reply, Run, Step
from tracklog.producers.importers.transcript import Asked, Transcript
from tracklog.schemas.errors import ImportSourceError
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.values import ResultStatus, Role, Usage

HISTORY: Final = "history"
SHELL: Final = "bash"
SUBMITTED: Final = "submitted"
"""How the exit status of a run starts that handed in a result; every other one says why it did not."""

_ROLES: Final[Mapping[str, Role]] = {"system": Role.SYSTEM, "user": Role.USER, "assistant": Role.AGENT}


def parse_traj(data: bytes, name: str, redaction: Redaction | None = None) -> Run | BadRun:
    """The run in a `.traj` file; `name` is the file's, and names the trajectory: `swe-<name without ending>`."""
    try:
        return _run(load_record(data, redaction), name)
    except (ImportSourceError, ValidationError) as error:
        return bad_run(name, 0, error)


def _run(record: Record, name: str) -> Run:
    info = _object(record, "info")
    reading = _Reading(record)
    reading.read(message_list(record, HISTORY))
    status = _text(info.get("exit_status"))
    task = stem(name)
    return Run(
        trajectory_id=f"swe-{task}",
        source=source_of(record),
        dataset=SWE_AGENT,
        agent=SWE_AGENT,
        model=_text(_object(_object(_object(record, "replay_config"), "agent"), "model").get("name")),
        task=reading.transcript.task,
        prompt=reading.transcript.prompt,
        labels=labels_of({"dataset": SWE_AGENT, "task": task, "exit_status": status}),
        steps=_with_totals(reading.transcript.steps, _object(info, "model_stats")),
        failed=bool(status) and not status.startswith(SUBMITTED),
        reason=status[:TEXT_FIELD_CHARS_MAX],
        result=_result(info),
        recording=recording_of(record, HISTORY),
        file=name,
    )


def _object(holder: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = holder.get(field)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _result(info: Mapping[str, Any]) -> str | None:
    told = {field: info[field] for field in ("exit_status", "submission") if info.get(field) is not None}
    return orjson.dumps(told).decode() if told else None


def _with_totals(steps: list[Step], stats: Mapping[str, Any]) -> tuple[Step, ...]:
    """The recording counts tokens and money for the run as a whole: the last reply carries them, so sums hold."""
    sent, received = _number(stats.get("tokens_sent")), _number(stats.get("tokens_received"))
    cost = _number(stats.get("instance_cost"))
    replies = [(index, step) for index, step in enumerate(steps) if isinstance(step, Reply)]
    if not replies or not (sent or received or cost):
        return tuple(steps)
    index, last = replies[-1]
    total = Reply(
        message=last.message,
        calls=last.calls,
        seen=last.seen,
        usage=Usage(input_tokens=int(sent), output_tokens=int(received)),
        cost_micro_usd=round(cost * 1_000_000) if cost else None,
    )
    return (*steps[:index], total, *steps[index + 1 :])


def _number(value: object) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else 0


class _Reading:
    """Walks the history; `trajectory` is followed beside it, a step for each reply."""

    def __init__(self, record: Record) -> None:
        self.transcript = Transcript()
        taken = record.get("trajectory")
        self._taken: list[Any] = taken if isinstance(taken, list) else []
        self._replies = 0
        self._acting = False

    def read(self, history: list[Record]) -> None:
        replies = [m for m in history if m.get("role") == "assistant" and not m.get("is_demo")]
        if len(replies) != len(self._taken):
            self._taken = []
        for index, message in enumerate(history):
            try:
                self._read_one(message)
            except ImportSourceError as error:
                raise ImportSourceError(f"message {index}: {error.message}") from None
        self._last_result()

    def _read_one(self, message: Record) -> None:
        role = message.get("role")
        if role is None:
            raise ImportSourceError("the field 'role' is missing")
        if role not in (*_ROLES, "tool"):
            raise ImportSourceError(f"unknown role {role!r}; known are {', '.join(_ROLES)}, tool")
        if message.get("is_demo"):
            self.transcript.say("demonstration", _ROLES.get(role, Role.USER), message)
        elif role == "assistant":
            self._reply(message)
        elif role == "system":
            self.transcript.system(message)
        elif role == "tool":
            self._answer(self._answered(message), message)
        elif self._acting:
            self._acting = False
            self._answer(self.transcript.open_ids[-1], message)
        else:
            self.transcript.user(message)

    def _reply(self, message: Record) -> None:
        calls = asked_calls(message)
        actions = [] if calls else _action(message)
        self._replies += 1
        self._acting = bool(actions)
        self.transcript.reply(message, calls or actions)

    def _answered(self, message: Record) -> str:
        ids, open_ids = message.get("tool_call_ids"), self.transcript.open_ids
        if isinstance(ids, list) and ids and isinstance(ids[0], str):
            return ids[0]
        if isinstance(message.get("tool_call_id"), str):
            return str(message["tool_call_id"])
        if len(open_ids) == 1:
            return open_ids[0]
        raise ImportSourceError("a tool message without 'tool_call_ids'")

    def _answer(self, recorded_id: str, message: Record) -> None:
        self.transcript.answer(recorded_id, message, ResultStatus.OK, self._duration_ms())

    def _duration_ms(self) -> int | None:
        seconds = self._step().get("execution_time")
        return round(_number(seconds) * 1000) if isinstance(seconds, int | float) else None

    def _step(self) -> Mapping[str, Any]:
        at = self._replies - 1
        step = self._taken[at] if 0 <= at < len(self._taken) else None
        return step if isinstance(step, dict) else {}

    def _last_result(self) -> None:
        """The run ended with an action: nobody read its result, but `trajectory` has it."""
        steps = self.transcript.steps
        last = steps[-1] if steps else None
        observation = self._step().get("observation")
        if isinstance(last, Reply) and len(last.calls) == 1 and isinstance(observation, str):
            self.transcript.answer_aside(observation, ResultStatus.OK, self._duration_ms())


def _action(message: Record) -> list[Asked]:
    """The action in a reply's text. Its tool is the agent's own command, or the shell."""
    action = _text(message.get("action"))
    if not action.strip():
        return []
    command = action.split(maxsplit=1)[0]
    return [Asked(None, command if command in SWE_AGENT_COMMANDS else SHELL, action)]
