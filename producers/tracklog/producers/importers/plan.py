"""From a recorded run to its events: pure, and the same bytes wherever it is done.

    TaskStarted                       driver import; the system prompt as prompt_template
    Observed "recording"              what the record holds beside its messages
    MessageReceived                   a user turn, a later system message, a demonstration
    ContextBuilt, ModelReplied        each reply; the context is every message before it
      Authorized, ToolIntent          each call of it; place recorded, so that nobody ever runs it
    ToolResult                        each result; status unknown, before the end, for a call without one
    TaskEnded                         failed when the recording says so, else completed

Events refer to each other by step number, counted from 0 over the plan: in `causes`, and in the `seqs` of a
ContextBuilt. `located` puts in the seqs that the log gave. `ModelReplied.reply` is the JSON of the model's
message, key for key, calls included; `tool_calls` has the same calls in the same order under ids that are
unique in the run. Other bodies are the message's text, or the JSON of a content that is no text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tracklog.producers.importers.effects import effect_of
from tracklog.producers.importers.run import JSON, TEXT, Content, Outcome, Reply, Run, Spoken
from tracklog.producers.importers.shape import EXT_MESSAGE, NO_MESSAGE
from tracklog.schemas import events as ev
from tracklog.schemas.context import context_hash
from tracklog.schemas.values import (
    BlobRef,
    Body,
    ContextEdit,
    Driver,
    EditOp,
    Ending,
    ObservedKind,
    Place,
    ResultStatus,
    Ruling,
    Settled,
    ToolCall,
)

PLAN_VERSION: Final = "import/1"
"""Goes into TaskStarted. Raise it when a plan changes: a half-imported run is never finished by another plan."""
RECORDED: Final = "recorded"
"""The policy and the context rule of a recorded run: whatever its own harness did."""
RECORDING: Final = "recording"
"""The name of the Observed event that keeps what is no message."""

_NO_EXT: Final[Mapping[str, str]] = {}


class Stored(NamedTuple):
    """A text that must be in the blob store before the event that names it."""

    text: str
    media_type: str


class PlannedEvent(NamedTuple):
    """One event to be. `causes` are step numbers; `stores` are the texts that its BlobRefs name."""

    body: ev.EventBody
    turn: int
    causes: tuple[int, ...] = ()
    ext: Mapping[str, str] = _NO_EXT
    stores: tuple[Stored, ...] = ()


def plan(run: Run) -> tuple[PlannedEvent, ...]:
    """The events of a run after its claim, in order. Never fails for a Run that could be built."""
    planning = _Planning(run)
    planning.start()
    for step in run.steps:
        if isinstance(step, Spoken):
            planning.spoken(step)
        elif isinstance(step, Reply):
            planning.reply(step)
        else:
            planning.outcome(step)
    planning.end()
    return tuple(planning.events)


def located(body: ev.EventBody, seq_of: Sequence[int]) -> ev.EventBody:
    """The event with seqs in place of step numbers; `seq_of` has the seq of every step before it."""
    if not isinstance(body, ev.ContextBuilt):
        return body
    edits = tuple(
        ContextEdit(op=edit.op, seqs=tuple(seq_of[step] for step in edit.seqs)) if edit.seqs else edit
        for edit in body.edits
    )
    return body.model_copy(update={"edits": edits})


class _Planning:
    """The plan so far: the messages that the next context will hold, and the calls without a result."""

    def __init__(self, run: Run) -> None:
        self.events: list[PlannedEvent] = []
        self._run = run
        self._turn = 0
        self._hashes: list[bytes] = []
        self._fresh: list[int] = []
        self._kept = 0
        self._intents: dict[str, int] = {}
        self._tools_hash = None if run.tools is None else _digest(run.tools)

    def start(self) -> None:
        run = self._run
        prompt = None if run.prompt is None else run.prompt.content
        tools = None if run.tools is None else Content(text=run.tools, media_type=JSON)
        body = ev.TaskStarted(
            driver=Driver.IMPORT,
            task=Body.of(run.task, TEXT),
            agent=run.agent,
            model=run.model,
            prompt_template=None if prompt is None else _blob_ref(prompt),
            tool_schemas=None if tools is None else _blob_ref(tools),
            labels=run.labels,
            code_version=PLAN_VERSION,
            source=run.source,
        )
        stores = tuple(Stored(one.text, one.media_type) for one in (prompt, tools) if one is not None)
        shape = "" if run.prompt is None else run.prompt.shape
        step = self._add(body, ext=_ext(shape), stores=stores)
        if run.prompt is not None:
            self._message(step, run.prompt.seen)
        if run.recording:
            value = Body.of(run.recording, JSON)
            self._add(ev.Observed(kind=ObservedKind.STEP, name=RECORDING, occurrence=0, value=value))

    def spoken(self, said: Spoken) -> None:
        body = ev.MessageReceived(peer=said.peer, role=said.role, message=_body(said.content))
        self._message(self._add(body, ext=_ext(said.shape)), said.seen)

    def reply(self, reply: Reply) -> None:
        self._turn += 1
        context = self._add(self._context())
        body = ev.ModelReplied(
            reply=Body.of(reply.message, JSON),
            tool_calls=reply.calls,
            usage=reply.usage,
            cost_micro_usd=reply.cost_micro_usd,
            model_served=self._run.model,
        )
        replied = self._add(body, (context,))
        self._message(replied, reply.seen)
        for call in reply.calls:
            self._call(call, replied)

    def outcome(self, outcome: Outcome) -> None:
        body = ev.ToolResult(
            call_id=outcome.call_id,
            status=outcome.status,
            output=_body(outcome.content),
            settled=Settled.RECORDED,
            duration_ms=outcome.duration_ms,
        )
        ext = _ext(outcome.shape if outcome.seen is not None else NO_MESSAGE)
        step = self._add(body, (self._intents.pop(outcome.call_id),), ext)
        if outcome.seen is not None:
            self._message(step, outcome.seen)

    def end(self) -> None:
        """Settles what has no result, since a trajectory ends only with no open intent (DESIGN §8, 9)."""
        for call_id in tuple(self._intents):
            nothing = Content(text="")
            self.outcome(Outcome(call_id=call_id, content=nothing, status=ResultStatus.UNKNOWN, seen=None))
        run = self._run
        ending = Ending.FAILED if run.failed else Ending.COMPLETED
        result = None if run.result is None else Body.of(run.result, JSON)
        self._add(ev.TaskEnded(ending=ending, result=result, reason=run.reason))

    def _add(
        self,
        body: ev.EventBody,
        causes: tuple[int, ...] = (),
        ext: Mapping[str, str] = _NO_EXT,
        stores: tuple[Stored, ...] = (),
    ) -> int:
        self.events.append(PlannedEvent(body, self._turn, causes, ext, stores))
        return len(self.events) - 1

    def _message(self, step: int, seen: bytes) -> None:
        self._fresh.append(step)
        self._hashes.append(seen)

    def _context(self) -> ev.ContextBuilt:
        edits = []
        if self._kept > 0:
            edits.append(ContextEdit(op=EditOp.KEEP, count=self._kept))
        if self._fresh:
            edits.append(ContextEdit(op=EditOp.ADD, seqs=tuple(self._fresh)))
        self._kept, self._fresh = len(self._hashes), []
        return ev.ContextBuilt(
            edits=tuple(edits),
            context_hash=context_hash(self._hashes, RECORDED, self._tools_hash),
            messages=len(self._hashes),
            rule_version=RECORDED,
        )

    def _call(self, call: ToolCall, replied: int) -> None:
        allowed = ev.Authorized(call_id=call.call_id, ruling=Ruling.ALLOW, policy_version=RECORDED)
        self._add(allowed, (replied,))
        intent = ev.ToolIntent(
            call_id=call.call_id,
            tool=call.tool,
            arguments=Body.of(call.arguments),
            effect=effect_of(self._run.dataset, call.tool),
            place=Place.RECORDED,
        )
        self._intents[call.call_id] = self._add(intent, (replied,))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _blob_ref(content: Content) -> BlobRef:
    data = content.text.encode()
    return BlobRef(hash=_digest(content.text), size_bytes=len(data), media_type=content.media_type)


def _body(content: Content) -> Body:
    return Body.of(content.text, content.media_type)


def _ext(shape: str) -> Mapping[str, str]:
    return {EXT_MESSAGE: shape} if shape else _NO_EXT
