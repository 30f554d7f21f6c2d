"""Reads recorded chat-completions runs: one JSON object a line, its messages under `messages`.

task_id, trial   (both) name the run: `<file>-<task_id>-<trial>`; a results file of tau-bench
id               else names it; without one, its content does
messages         system (or developer), user, assistant with tool_calls, tool
agent, model, tools, metadata, reward   are taken when they are there; everything else is kept as it is
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson
from pydantic import ValidationError

from tracklog.producers.importers.record import (
    Record,
    asked_calls,
    bad_run,
    label_text,
    labels_of,
    load_record,
    message_list,
    recording_of,
    source_of,
    stem,
)
from tracklog.producers.importers.run import BadRun, Run
from tracklog.producers.importers.transcript import Transcript
from tracklog.schemas.errors import ImportSourceError
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.values import ResultStatus

MESSAGES: Final = "messages"
TAU_BENCH_ERROR: Final = "Error"
"""How a tau-bench tool says that it refused; other forms do not say it in a way that can be told."""


def parse_chat_jsonl(
    lines: Iterable[bytes], file: str, *, agent: str = "", model: str = "", redaction: Redaction | None = None
) -> Iterator[Run | BadRun]:
    """The runs of a file, in order; what cannot be read comes as a BadRun, and the others go on.

    `lines` keep their line ends, so that a half-written last line is told from a broken one. `agent` and
    `model` are used where a run does not name its own; the default agent is the file's name.
    """
    line, found = 0, 0
    for line, data in enumerate(lines, start=1):
        if not data.strip():
            continue
        found += 1
        try:
            yield _run(load_record(data, redaction), file, line, agent, model)
        except (ImportSourceError, ValidationError) as error:
            yield _named(file, line, data, error)
    if not found:
        yield BadRun(file=file, line=0, reason="the file holds no run")


def _named(file: str, line: int, data: bytes, error: ImportSourceError | ValidationError) -> BadRun:
    bad = bad_run(file, line, error)
    if not data.endswith(b"\n") and bad.reason.startswith("not JSON"):
        return bad.model_copy(update={"reason": f"half-written: the file ends inside this line ({bad.reason})"})
    return bad


def _run(record: Record, file: str, line: int, agent: str, model: str) -> Run:
    tau_bench = "task_id" in record and "trial" in record
    transcript = _read(message_list(record, MESSAGES), tau_bench)
    source, dataset, reward = source_of(record), stem(file), record.get("reward")
    own = {"dataset": dataset, "task": record.get("task_id"), "trial": record.get("trial"), "reward": reward}
    return Run(
        trajectory_id=_identity(record, dataset, source),
        source=source,
        dataset=dataset,
        agent=_text(record, "agent") or agent or dataset,
        model=_text(record, "model") or model,
        task=transcript.task,
        prompt=transcript.prompt,
        tools=orjson.dumps(record["tools"]).decode() if record.get("tools") else None,
        labels=labels_of(own, record.get("metadata")),
        steps=tuple(transcript.steps),
        result=orjson.dumps({"reward": reward}).decode() if reward is not None else None,
        recording=recording_of(record, MESSAGES),
        file=file,
        line=line,
    )


def _identity(record: Record, dataset: str, source: str) -> str:
    if "task_id" in record and "trial" in record:
        parts = [label_text(record[field]) for field in ("task_id", "trial")]
        if not all(parts):
            raise ImportSourceError("'task_id' and 'trial' must be texts or numbers, and not empty")
        return "-".join((dataset, *parts))
    if "id" not in record:
        return f"{dataset}-{source[:16]}"
    identity = record["id"]
    if isinstance(identity, bool) or not isinstance(identity, str | int):
        raise ImportSourceError("'id' must be a text or a number")
    return str(identity)


def _text(record: Record, field: str) -> str:
    value = record.get(field)
    return value if isinstance(value, str) else ""


def _read(messages: list[Record], tau_bench: bool) -> Transcript:
    transcript = Transcript()
    for index, message in enumerate(messages):
        try:
            _read_one(transcript, message, tau_bench)
        except ImportSourceError as error:
            raise ImportSourceError(f"message {index}: {error.message}") from None
    return transcript


def _read_one(transcript: Transcript, message: Mapping[str, Any], tau_bench: bool) -> None:
    match message.get("role"):
        case "system" | "developer":
            transcript.system(message)
        case "user":
            transcript.user(message)
        case "assistant":
            calls = asked_calls(message)
            if not calls and "content" not in message:
                raise ImportSourceError("the field 'content' is missing")
            transcript.reply(message, calls)
        case "tool":
            transcript.answer(_answered(message), message, _status(message, tau_bench))
        case None:
            raise ImportSourceError("the field 'role' is missing")
        case role:
            raise ImportSourceError(f"unknown role {role!r}; known are system, developer, user, assistant, tool")


def _answered(message: Mapping[str, Any]) -> str:
    call_id = message.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        raise ImportSourceError("a tool message without 'tool_call_id'")
    return call_id


def _status(message: Mapping[str, Any], tau_bench: bool) -> ResultStatus:
    content = message.get("content")
    refused = tau_bench and isinstance(content, str) and content.startswith(TAU_BENCH_ERROR)
    return ResultStatus.ERROR if refused else ResultStatus.OK
