"""From what a client gave to events: pure, but for messages that are read. Refuses before anything is appended.

An event is built by the types of `schemas.events`, then passed by the lifecycle tables in the order of the batch.
Turns, causes, edits of the context and its hash are those that an importer would write of the same run.
"""

from __future__ import annotations

import hashlib
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple, NoReturn

import orjson
from pydantic import ValidationError

from tracklog.consumers.ingest import given as gv
from tracklog.consumers.ingest.recording import EXT_GIVEN, Recording
from tracklog.producers.guard import Guard
from tracklog.producers.importers.plan import RECORDED, PlannedEvent, Stored
from tracklog.producers.importers.run import JSON, TEXT
from tracklog.producers.importers.shape import EXT_MESSAGE, content_of, shape_of
from tracklog.producers.importers.transcript import answer_message, seen_hash
from tracklog.producers.models import calls_of
from tracklog.schemas import events as ev
from tracklog.schemas.context import context_hash
from tracklog.schemas.errors import InputError, InvalidEvent, ModelMalformed, TrajectoryEnded
from tracklog.schemas.redacting import redacted
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.state import State
from tracklog.schemas.values import BlobRef, Body, ContextEdit, Driver, EditOp, Place, Settled

__all__ = ["Item", "items_of", "plan"]

GIVEN_DIGITS: Final = 32
_RESULT_SHAPE: Final = shape_of(answer_message("", "", ""), {"role": "tool", "tool_call_id": "", "content": ""})
"""The message of a result as chat completions have it: without the name of the tool."""


class Item(NamedTuple):
    """One event as it was given: its place in the request (from 0), its number, and the hash of what it says."""

    place: int
    number: int
    given: gv.Start | gv.GivenEvent
    digest: str
    size_bytes: int

    @property
    def type(self) -> str:
        return "TaskStarted" if isinstance(self.given, gv.Start) else self.given.type


def items_of(first: int, given: Sequence[gv.Start | gv.GivenEvent]) -> list[Item]:
    """Raises InputError for text that has no UTF-8 form, or what else JSON cannot say."""
    return [_item(index, first + index, one) for index, one in enumerate(given)]


def _item(index: int, number: int, given: gv.Start | gv.GivenEvent) -> Item:
    said = given.model_dump(exclude_unset=True, exclude=_NOT_SAID if isinstance(given, gv.Start) else None)
    try:
        data = orjson.dumps(said, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise InputError(f"event {index} is not JSON that can be kept: {error}", details={"index": index}) from None
    return Item(index, number, given, hashlib.sha256(data).hexdigest()[:GIVEN_DIGITS], len(data))


_NOT_SAID: Final = {"client", "lease_s", "barrier"}
"""What is asked for with a start, and is no part of it."""


def plan(
    items: Sequence[Item],
    recording: Recording,
    state: State,
    source: str,
    next_seq: int,
    redaction: Redaction | None = None,
) -> list[PlannedEvent]:
    """The events, to be appended from `next_seq` on, without what a policy takes out; `causes` are seqs.

    Raises InputError for one that makes no sense, InvalidEvent or TrajectoryEnded for one that cannot follow; `details`
    name its index, and the field where there is one.
    """
    planning = _Planning(recording, state, source, next_seq, redaction)
    return [planning.planned(item) for item in items]


class _Planning:
    """What the recording will be once the events before are in."""

    def __init__(
        self, recording: Recording, state: State, source: str, next_seq: int, redaction: Redaction | None
    ) -> None:
        self._redaction = redaction
        self._recording = recording
        self._source = source
        self._guard = Guard(state)
        self._seq = next_seq
        self._turn = state.turn
        self._tools = None if state.task is None else state.task.tools
        self._said: dict[int, bytes] = {}
        self._numbers: dict[int, int] = {}
        self._context = [one.seq for one in state.context]
        self._hashes = [recording.said[seq] for seq in self._context]
        self._context_seq = recording.context_seq
        self._replies: ChainMap[str, int] = ChainMap({}, recording.replies)
        self._intents: ChainMap[str, int] = ChainMap({}, recording.intents)

    def planned(self, item: Item) -> PlannedEvent:
        body, stores = self._body(item)
        if self._redaction is not None:
            body = redacted(body, self._redaction)
        try:
            self._guard.pass_on(body)
        except (InvalidEvent, TrajectoryEnded) as error:
            details = {"index": item.place, "type": item.type, "reason": error.message}
            raise type(error)(f"event {item.place}: {error.message}", hint=error.hint, details=details) from None
        causes = self._causes(body)
        shape = _RESULT_SHAPE if isinstance(body, ev.ToolResult) else ""
        message = None if isinstance(body, ev.TaskStarted) else self._recording.retelling.told(body, shape)
        if message is not None:
            self._said[self._seq] = seen_hash(message)
        self._note(body)
        self._numbers[item.number] = self._seq
        self._seq += 1
        ext = {EXT_GIVEN: item.digest} | ({EXT_MESSAGE: shape} if shape else {})
        return PlannedEvent(body, self._turn, causes, ext, stores)

    def _causes(self, body: ev.EventBody) -> tuple[int, ...]:
        """As an import has them: a reply follows from its context, what is done with a call from the reply that asks
        for it, a result from the intent."""
        found: int | None = None
        if isinstance(body, ev.ModelReplied):
            found = self._context_seq
        elif isinstance(body, ev.Authorized | ev.ToolIntent):
            found = self._replies.get(body.call_id)
        elif isinstance(body, ev.ToolResult):
            found = self._intents.get(body.call_id, self._replies.get(body.call_id))
        return () if found is None else (found,)

    def _note(self, body: ev.EventBody) -> None:
        if isinstance(body, ev.ContextBuilt):
            self._context_seq = self._seq
        elif isinstance(body, ev.ModelReplied):
            self._replies.update((call.call_id, self._seq) for call in body.tool_calls)
        elif isinstance(body, ev.ToolIntent):
            self._intents[body.call_id] = self._seq

    def _body(self, item: Item) -> tuple[ev.EventBody, tuple[Stored, ...]]:
        given = item.given
        try:
            if isinstance(given, gv.Start):
                return _started(self._without_secrets(given))
            if isinstance(given, gv.ContextBuilt):
                self._turn += 1
                return self._context_built(item, given), ()
            body = _BODIES[type(given)](given)
            self._check_new_calls(item, body)
            return body, ()
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            _unfit(item, ".".join(map(str, first["loc"])), first["msg"])
        except ModelMalformed as error:
            _unfit(item, "reply", error.message)

    def _without_secrets(self, given: gv.Start) -> gv.Start:
        """Of what goes to the blob store: the prompt. Tools are as models are told of them."""
        if self._redaction is None or given.prompt is None:
            return given
        return given.model_copy(update={"prompt": self._redaction.text(given.prompt)})

    def _check_new_calls(self, item: Item, body: ev.EventBody) -> None:
        for call in body.tool_calls if isinstance(body, ev.ModelReplied) else ():
            if call.call_id in self._replies:
                reason = f"call id {call.call_id!r} was used before: in tool_calls give each call one of its own"
                _unfit(item, "tool_calls", reason)

    def _context_built(self, item: Item, given: gv.ContextBuilt) -> ev.ContextBuilt:
        seqs, known = self._named(item, given), len(self._context)
        if seqs[:known] != self._context:
            known = 0  # else it only grew, as nearly every context does
        hashes = self._hashes[:known] + [self._hash_of(seq) for seq in seqs[known:]]
        edits = tuple(_edits(self._context, seqs))
        self._context, self._hashes = seqs, hashes
        return ev.ContextBuilt(
            edits=edits,
            context_hash=context_hash(hashes, RECORDED, self._tools),
            messages=len(seqs),
            rule_version=RECORDED,
        )

    def _hash_of(self, seq: int) -> bytes:
        return self._said.get(seq) or self._recording.said[seq]

    def _named(self, item: Item, given: gv.ContextBuilt) -> list[int]:
        """The seqs of the messages of a context."""
        if given.numbers is not None and given.seqs is not None:
            _unfit(item, "seqs", "messages are named by number or by seq, not by both")
        if given.numbers is not None:
            field, found = "numbers", [(number, self._seq_of(number)) for number in given.numbers]
        elif given.seqs is not None:
            field, found = "seqs", [(seq, seq) for seq in given.seqs]
        else:
            return [*self._recording.said, *self._said]
        for name, seq in found:
            if seq is None or (seq not in self._recording.said and seq not in self._said):
                _unfit(item, field, f"{name} is no message that was recorded before")
        return [seq for _, seq in found if seq is not None]

    def _seq_of(self, number: int) -> int | None:
        seq = self._numbers.get(number)
        return self._recording.seq_of(self._source, number) if seq is None else seq


def _unfit(item: Item, field: str, reason: str) -> NoReturn:
    details = {"index": item.place, "type": item.type, "field": field, "reason": reason}
    raise InputError(f"event {item.place}: {field}: {reason}", details=details)


def _edits(before: Sequence[int], after: Sequence[int]) -> Iterator[ContextEdit]:
    """The steps from one context to the next; nearly always it only grows."""
    kept = len(before)
    if list(after[:kept]) == list(before):
        steps: Sequence[tuple[str, int, int, int, int]] = [
            ("equal", 0, kept, 0, kept),
            ("insert", kept, kept, kept, len(after)),
        ]
    else:
        steps = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    for op, i, j, a, b in steps:
        if op == "equal":
            if j > i:
                yield ContextEdit(op=EditOp.KEEP, count=j - i)
            continue
        if j > i:
            yield ContextEdit(op=EditOp.DROP, count=j - i)
        if b > a:
            yield ContextEdit(op=EditOp.ADD, seqs=tuple(after[a:b]))


def _started(given: gv.Start) -> tuple[ev.TaskStarted, tuple[Stored, ...]]:
    prompt = None if given.prompt is None else Stored(given.prompt, TEXT)
    tools = None if given.tools is None else Stored(orjson.dumps(given.tools).decode(), JSON)
    body = ev.TaskStarted(
        driver=Driver.INGEST,
        task=Body.of(given.task, TEXT),
        agent=given.agent,
        model=given.model,
        model_version=given.model_version,
        sampling=given.sampling,
        prompt_template=None if prompt is None else _blob_ref(prompt),
        tool_schemas=None if tools is None else _blob_ref(tools),
        labels=given.labels,
        conversation_id=given.conversation_id,
        trace_parent=given.trace_parent,
        code_version=given.code_version,
    )
    return body, tuple(one for one in (prompt, tools) if one is not None)


def _blob_ref(one: Stored) -> BlobRef:
    data = one.text.encode()
    return BlobRef(hash=hashlib.sha256(data).digest(), size_bytes=len(data), media_type=one.media_type)


def _content(value: object) -> Body:
    content = content_of(value)
    return Body.of(content.text, content.media_type)


def _replied(given: gv.ModelReplied) -> ev.ModelReplied:
    calls = calls_of(given.reply) if given.tool_calls is None else tuple(call.value for call in given.tool_calls)
    asked = given.reply.get("tool_calls") or ()
    if isinstance(asked, list) and asked and len(asked) != len(calls):
        raise ModelMalformed(f"the reply has {len(asked)} calls, tool_calls has {len(calls)}")
    return ev.ModelReplied(
        reply=Body.of(orjson.dumps(given.reply).decode(), JSON),
        tool_calls=calls,
        usage=given.usage.value,
        **_same(given, "stop_reason", "cost_micro_usd", "model_served", "sampling_seed", "duration_ms"),
    )


def _intended(given: gv.ToolIntent) -> ev.ToolIntent:
    arguments = given.arguments if isinstance(given.arguments, str) else orjson.dumps(given.arguments).decode()
    return ev.ToolIntent(
        arguments=Body.of(arguments),
        place=Place.RECORDED,
        **_same(given, "call_id", "tool", "tool_version", "effect", "idempotency_key"),
    )


def _same(given: gv.Given, *fields: str) -> dict[str, Any]:
    return {field: getattr(given, field) for field in fields}


_BODIES: Final[Mapping[type, Any]] = {
    gv.ModelReplied: _replied,
    gv.Authorized: lambda one: ev.Authorized(**_same(one, "call_id", "ruling", "policy_version", "rule")),
    gv.ToolIntent: _intended,
    gv.ToolResult: lambda one: ev.ToolResult(
        output=_content(one.output), settled=Settled.RECORDED, **_same(one, "call_id", "status", "duration_ms")
    ),
    gv.Observed: lambda one: ev.Observed(value=_content(one.value), **_same(one, "kind", "name", "occurrence")),
    gv.MessageReceived: lambda one: ev.MessageReceived(message=_content(one.message), **_same(one, "peer", "role")),
    gv.TaskEnded: lambda one: ev.TaskEnded(
        result=None if one.result is None else _content(one.result), **_same(one, "ending", "reason")
    ),
}
