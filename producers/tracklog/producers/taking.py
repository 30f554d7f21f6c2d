"""Taking what came into the inbox: each record becomes an event, in order, by the owner alone (DESIGN §8, rule 3).

    Message      MessageReceived: `Session.receive` gives it
    Decision     ApprovalResolved, when it quotes the request of a call that waits for one, and edits it to what its
                 tool can be called with
    Settlement   ToolResult, when it names the intent of a call that a person was asked about
    Cancel       CancelRequested: the session raises Cancelled at its next step
    Annotation   Annotated
    TimerDue     TimerFired, when there is such a timer
    Outcome      ToolResult of a dispatched call, or Escalated when nobody knows what became of it; MessageReceived
                 when a child run has ended

Anything else, and what is late, double or about nothing, becomes an InboxRefused: nothing is lost without a word.
Taken is taken once: the state keeps the highest sequence of each source.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from tracklog.infra.clock import Clock
from tracklog.producers.mailbox import Incoming, Mailbox
from tracklog.producers.pen import WriterPen
from tracklog.producers.settle import A_PERSON
from tracklog.schemas import events as ev
from tracklog.schemas import inbox
from tracklog.schemas.lifecycle import OPEN_INTENT, CallStatus, TrajectoryStatus
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.spawn import EXT_ENDED, ended_of, spawn_ext
from tracklog.schemas.state import State
from tracklog.schemas.values import Choice, Effect, Ending, Place, Ref, ResultStatus, Role, Settled

__all__ = ["Received", "Taking", "take_all"]

READ_S: Final = 0.5
"""How long one of several tasks that wait reads for all, before another one does."""


Unfit = Callable[[str, str], str]


class Received(NamedTuple):
    """`ended`: how the child run ended whose outcome it is."""

    seq: int
    body: ev.MessageReceived
    ended: Ending | None = None


class Taken(NamedTuple):
    """An event that takes an inbox record."""

    seq: int
    body: ev.EventBody
    ext: Mapping[str, str]


def anything(tool: str, arguments: str) -> str:
    """Finds nothing wrong with any arguments."""
    return ""


class Taking:
    """Of one open session. `messages` were taken and not given out; `resolved` are decisions by call.

    `unfit` says what is wrong with edited arguments for a tool, "" for nothing.
    """

    def __init__(self, pen: WriterPen, mailbox: Mailbox, clock: Clock, unfit: Unfit = anything) -> None:
        state = pen.writer.state
        self._pen = pen
        self._clock = clock
        self._unfit = unfit
        self.mailbox: Final = mailbox
        self.messages: deque[Received] = deque()
        self.resolved: dict[str, tuple[int, ev.ApprovalResolved]] = {}
        self.results: dict[str, tuple[int, ev.ToolResult]] = {}
        self.children: dict[str, Received] = {}
        """Outcomes of child runs, by their ids."""
        self.woken: Counter[str] = Counter()
        """Timers that went off, by name."""
        self.escalated = {name for name, call in state.calls.items() if call.status is CallStatus.ESCALATED}
        self._one = asyncio.Lock()
        self._reading = False
        self._news = asyncio.Event()
        self.cancelled: str | None = state.reason if state.status is TrajectoryStatus.CANCELLING else None

    def given_out(self) -> None:
        """What was taken up to now is in the record that the session answers from."""
        self.messages.clear()
        self.resolved.clear()
        self.children.clear()
        self.woken.clear()

    async def look(self) -> None:
        """Takes everything that has come up to now."""
        await self.mailbox.look()
        await self.take()

    async def until(self, ready: Callable[[], bool], wait_s: float) -> bool:
        """Takes what comes until it is `ready`, at most so long. Tasks that wait side by side read for each other."""
        deadline_s = self._clock.monotonic_s() + wait_s
        while not ready():
            left_s = min(deadline_s - self._clock.monotonic_s(), READ_S)
            if left_s <= 0:
                return False
            if self._reading:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), left_s)
                continue
            self._reading = True
            try:
                if await self.mailbox.wait(left_s):
                    await self.take()
            finally:
                self._reading = False
                self._news.set()
                self._news = asyncio.Event()
        return True

    async def take(self) -> bool:
        """Takes what is there; False when nothing was. Raises what appending raises."""
        async with self._one:
            taken = await take_all(self._pen, self.mailbox, self._unfit)
        for seq, body, ext in taken:
            if isinstance(body, ev.MessageReceived):
                self._heard(Received(seq, body, ended_of(ext)))
            elif isinstance(body, ev.ApprovalResolved):
                self.resolved[body.call_id] = (seq, body)
            elif isinstance(body, ev.TimerFired):
                self.woken[body.timer_id] += 1
            elif isinstance(body, ev.Escalated):
                self.escalated.add(body.call_id)
            elif isinstance(body, ev.ToolResult):
                self.results[body.call_id] = (seq, body)
            elif isinstance(body, ev.CancelRequested):
                self.cancelled = body.reason or f"cancelled by {body.by}"
        return bool(taken)

    def _heard(self, one: Received) -> None:
        if one.ended is None:
            self.messages.append(one)
        else:
            self.children[one.body.peer] = one


async def take_all(pen: WriterPen, mailbox: Mailbox, unfit: Unfit = anything) -> list[Taken]:
    """Events for everything that waits, appended in its order.

    Each is judged by the state after the ones before it, so a second answer to one question is refused.
    """
    out: list[Taken] = []
    for one in mailbox.waiting():
        state = await pen.standing()
        if one.inbox_id.seq > state.inbox.get(one.inbox_id.source, -1):
            body, cause = _event(state, one, unfit)
            ext = ext_of(one, body)
            seq = await pen.take(body, one, turn=state.turn, cause=cause, ext=ext)
            out.append(Taken(seq, body, ext))
        mailbox.took(one)
    return out


def _event(state: State, one: Incoming, unfit: Unfit) -> tuple[ev.EventBody, int | None]:
    """(the event that takes this record, the seq of the one that it answers)."""
    body = one.body
    if state.ended and not isinstance(body, inbox.Annotation):
        return _refusal(one, "the trajectory has ended"), None
    if isinstance(body, inbox.Annotation):
        return body.event(), None
    if isinstance(body, inbox.Message):
        return ev.MessageReceived(peer=body.peer, role=body.role, message=body.message, about=body.about), None
    if isinstance(body, inbox.Cancel):
        return ev.CancelRequested(by=body.by, reason=body.reason), None
    if isinstance(body, inbox.Decision):
        return _decided(state, one, body, unfit)
    if isinstance(body, inbox.Settlement):
        return _settled(state, one, body)
    if isinstance(body, inbox.Outcome):
        return _child_ended(state, one, body) if EXT_ENDED in one.ext else _came_out(state, one, body)
    if isinstance(body, inbox.TimerDue) and body.timer_id in state.timers:
        return ev.TimerFired(timer_id=body.timer_id), None
    return _refusal(one, _REASONS.get(one.name, "nothing waits for it")), None


def _decided(state: State, one: Incoming, body: inbox.Decision, unfit: Unfit) -> tuple[ev.EventBody, int | None]:
    call = state.calls.get(body.call_id)
    if call is None or call.status is not CallStatus.ASKED:
        return _refusal(one, f"call {body.call_id} does not wait for a decision (any more)"), None
    if call.request_hash != body.request_hash:
        return _refusal(one, f"it answers another request than the one for call {body.call_id}"), None
    if body.choice is Choice.EXPIRE:
        if call.expires_at is None:
            return _refusal(one, f"the request about call {body.call_id} does not expire"), None
    elif call.may_approve and body.approver not in call.may_approve:
        return _refusal(one, f"{body.approver} may not decide about call {body.call_id}"), None
    if body.arguments is not None:
        wrong = unfit(call.tool, body.arguments.text) if body.arguments.whole else "they are too long"
        if wrong:
            return _refusal(one, f"the edited arguments are not taken: {wrong}"[:TEXT_FIELD_CHARS_MAX]), None
    return ev.ApprovalResolved(**body.model_dump()), None


def _settled(state: State, one: Incoming, body: inbox.Settlement) -> tuple[ev.EventBody, int | None]:
    call = state.calls.get(body.call_id)
    if call is None or call.status is not CallStatus.ESCALATED or call.hash != body.intent_hash:
        return _refusal(one, f"nobody was asked about call {body.call_id}"), None
    result = ev.ToolResult(call_id=body.call_id, status=body.status, output=body.output, settled=Settled.PERSON)
    return result, call.seq


def _came_out(state: State, one: Incoming, body: inbox.Outcome) -> tuple[ev.EventBody, int | None]:
    """What a dispatcher says, or whoever answers for a tool that said `pending`.

    Of a readonly call it does not matter whether it happened, so nobody is asked.
    """
    call = state.calls.get(body.call_id)
    if call is None or call.status not in OPEN_INTENT or call.place is not Place.DISPATCH:
        return _refusal(one, f"call {body.call_id} is not open where calls are dispatched (any more)"), None
    if call.hash != body.intent_hash:
        return _refusal(one, f"it answers another intent than the one of call {body.call_id}"), None
    if body.status is ResultStatus.UNKNOWN and call.effect is not Effect.READONLY:
        if call.status is CallStatus.ESCALATED:
            return _refusal(one, f"a person is asked about call {body.call_id} already"), None
        tried = body.output.text[:TEXT_FIELD_CHARS_MAX]
        return ev.Escalated(call_id=body.call_id, tried=tried, asked=A_PERSON), call.seq
    result = ev.ToolResult(
        call_id=body.call_id,
        status=body.status,
        output=body.output,
        settled=body.settled,
        duration_ms=body.duration_ms,
        attempts=body.slot,
    )
    return result, call.seq


def _child_ended(state: State, one: Incoming, body: inbox.Outcome) -> tuple[ev.EventBody, int | None]:
    child = state.children.get(body.call_id)
    if child is None or child.hash != body.intent_hash or ended_of(one.ext) is None:
        return _refusal(one, f"no child run {body.call_id} is waited for (any more)"), None
    about = Ref(trajectory_id=state.trajectory_id, seq=child.seq)
    received = ev.MessageReceived(peer=body.call_id, role=Role.AGENT, message=body.output, about=about)
    return received, child.seq


def ext_of(one: Incoming, body: ev.EventBody) -> Mapping[str, str]:
    """What the event that takes a record says beside its body: how a child ended; whose child was refused."""
    if isinstance(body, ev.MessageReceived) and isinstance(one.body, inbox.Outcome):
        return {EXT_ENDED: one.ext[EXT_ENDED]}
    return spawn_ext(one.ext) if isinstance(body, ev.InboxRefused) and isinstance(one.body, inbox.Submit) else {}


def _refusal(one: Incoming, reason: str) -> ev.InboxRefused:
    return ev.InboxRefused(refused=one.inbox_id, kind=one.name, reason=reason)


_REASONS: Final[Mapping[str, str]] = {
    "Submit": "the trajectory has a task already",
    "Retry": "the trajectory goes on already",
    "TimerDue": "there is no such timer",
}
