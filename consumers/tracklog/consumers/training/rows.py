"""Rows to train on: what a model was given at a call, and what it said; or a whole run of it.

Messages and tools are made anew from the events that hold them, and given only when the context's hash, made anew from
them, is the one that was recorded: then they are what the model saw.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

import orjson

from tracklog.consumers.training.finished import Finished
from tracklog.consumers.turns import Context
from tracklog.schemas import events as ev
from tracklog.schemas.errors import BlobError, InputError, InvalidEvent
from tracklog.schemas.redaction import Redaction

__all__ = ["Form", "Training", "Unit", "split_of"]

BUCKETS: Final = 10_000


class Unit(StrEnum):
    CALL = "call"
    TRAJECTORY = "trajectory"


class Form(StrEnum):
    """OPENAI: `messages` and `tools` as the chat completions API takes them. HF: `prompt`, `completion` and `tools`,
    the arguments of calls as objects, as the templates of Hugging Face models take them."""

    OPENAI = "openai"
    HF = "hf"


class Training:
    """Makes rows, and counts what it left out, by why."""

    def __init__(
        self, unit: Unit, form: Form, *, valid: float, test: float, compacted: bool, redaction: Redaction | None
    ) -> None:
        self._unit = unit
        self._form = form
        self._valid, self._test = valid, test
        self._compacted = compacted
        self._redaction = redaction
        self.left_out: Counter[str] = Counter()

    def rows(self, one: Finished) -> Iterator[dict[str, Any]]:
        """Of one trajectory, by turn. Blocks."""
        if not one.report.sound:
            self.left_out["a trajectory that verify finds fault with"] += 1
            return
        try:
            contexts = [c for c in one.turns.contexts.values() if c.place >= one.turns.inherited]
        except (BlobError, InputError) as error:
            self.left_out[f"a trajectory that cannot be read: {type(error).__name__}"] += 1
            return
        if self._unit is Unit.CALL:
            for context in contexts:
                yield from self._row(one, context)
        elif contexts:
            if not self._compacted and not _only_grew(contexts):
                self.left_out["a trajectory whose context was compacted (--allow-compacted)"] += 1
                return
            yield from self._row(one, contexts[-1])

    def _row(self, one: Finished, context: Context) -> Iterator[dict[str, Any]]:
        reply = next((e for e in one.turns.of_turn(context.turn) if isinstance(e.body, ev.ModelReplied)), None)
        if reply is None:
            self.left_out["a call without a reply"] += 1
            return
        try:
            seen = one.turns.messages(context)
            problem = next((message.problem for message in seen if message.problem), "")
            same = not problem and one.turns.recomputed(context) == context.body.context_hash
            said = one.turns.message(one.trajectory_id, reply.envelope.seq)
            tools = one.turns.tools(context)
        except (BlobError, InvalidEvent) as error:
            self.left_out[f"a call that cannot be read: {type(error).__name__}"] += 1
            return
        if not same:
            self.left_out["a call whose context cannot be made anew as it was"] += 1
            return
        messages = [message.message for message in seen if message.message is not None]
        row = self._shaped(messages, said, tools)
        if self._redaction is not None:
            row = self._redaction.message(row)
        yield {**row, "provenance": self._provenance(one, context, reply.envelope.seq, reply.hash)}

    def _shaped(self, messages: list[dict[str, Any]], said: dict[str, Any], tools: Any) -> dict[str, Any]:
        offered = {"tools": tools} if tools else {}
        if self._form is Form.OPENAI:
            return {"messages": [*messages, said], **offered}
        return {"prompt": [_opened(one) for one in messages], "completion": [_opened(said)], **offered}

    def _provenance(self, one: Finished, context: Context, seq: int, digest: bytes) -> dict[str, Any]:
        position, body = one.positions[seq], one.started
        origin = body.origin
        return {
            "trajectory_id": one.trajectory_id,
            "tenant": one.state.tenant,
            "turn": context.turn,
            "kind": one.kind,
            "origin": None if origin is None else {"trajectory_id": origin.trajectory_id, "seq": origin.seq},
            "agent": body.agent,
            "model": _served(one, seq),
            "outcome": one.state.status.value,
            "reward": one.reward,
            "task": one.task_id,
            "split": split_of(one.task_id, self._valid, self._test),
            "context_hash": context.body.context_hash.hex(),
            "reply_hash": digest.hex(),
            "head": one.state.head.hash.hex(),
            "cluster_id": one.info.cluster_id,
            "topic_id": one.info.topic_id,
            "partition": position.partition,
            "offset": position.offset,
        }


def split_of(task: str, valid: float, test: float) -> str:
    """`train`, `valid` or `test`: all runs of one task are in one part, whoever asks and whenever."""
    at = int.from_bytes(hashlib.sha256(task.encode()).digest()[:8], "big") % BUCKETS / BUCKETS
    if at < test:
        return "test"
    return "valid" if at < test + valid else "train"


def _served(one: Finished, seq: int) -> str:
    reply = next(event.body for event in one.own if event.envelope.seq == seq)
    assert isinstance(reply, ev.ModelReplied)
    return reply.model_served or one.started.model


def _only_grew(contexts: list[Context]) -> bool:
    return not any(edit.op.value == "drop" for context in contexts for edit in context.body.edits)


def _opened(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose calls have their arguments as objects; text that is no JSON stays text."""
    calls = message.get("tool_calls")
    if not calls:
        return message
    return {**message, "tool_calls": [_opened_call(call) for call in calls]}


def _opened_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = orjson.loads(function["arguments"])
    except orjson.JSONDecodeError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}
