"""Taking what came into the inbox: each record becomes an event, in order, by the owner alone (DESIGN §8, rule 3).

    Message      MessageReceived: `Session.receive` gives it
    Decision     ApprovalResolved, when it quotes the request of a call that waits for one, is from somebody who may
                 decide, and edits it to what its tool can be called with. One that says that nobody decided in time
                 is ApprovalRequested of those who are asked next, while there are such
    Settlement   ToolResult, when it names the intent of a call that a person was asked about; a second ToolIntent, when
                 it says that the call is to be done again
    Cancel       CancelRequested: the session raises Cancelled at its next step
    Annotation   Annotated
    TimerDue     TimerFired, when there is such a timer
    Outcome      ToolResult of a dispatched call, or Escalated when nobody knows what became of it; MessageReceived
                 when a child run has ended

Anything else, what comes from a trajectory of another tenant, and what is late, double or about nothing, becomes an
InboxRefused: nothing is lost without a word.
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
from tracklog.producers.retrying import EXT_RETRY, Again
from tracklog.producers.settle import A_PERSON
from tracklog.schemas import events as ev
from tracklog.schemas import inbox
from tracklog.schemas.approvals import Approver, escalated, may_not
from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.lifecycle import OPEN_INTENT, CallStatus, TrajectoryStatus
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.spawn import EXT_ENDED, FROM, ended_of, spawn_ext
from tracklog.schemas.state import State
from tracklog.schemas.values import Choice, Effect, Ending, Place, Ref, ResultStatus, Role, Settled

__all__ = ["Received", "Resolved", "Taking", "requester_of", "take_all"]

READ_S: Final = 0.5
"""How long one of several tasks that wait reads for all, before another one does."""


Unfit = Callable[[str, str], str]
_NOTHING: Final[Mapping[str, str]] = {}
EXT_BY: Final = "by"
EXT_REASON: Final = "reason"
"""In `ext` of the event that takes a person's word on a call in doubt."""


class Received(NamedTuple):
    """`ended`: how the child run ended whose outcome it is."""

    seq: int
    body: ev.MessageReceived
    ended: Ending | None = None


class Resolved(NamedTuple):
    seq: int
    body: ev.ApprovalResolved
    ext: Mapping[str, str]


class Taken(NamedTuple):
    """The event that takes a record, and the seq of the one that it answers."""

    body: ev.EventBody
    cause: int | None = None
    ext: Mapping[str, str] = _NOTHING


def anything(tool: str, arguments: str) -> str:
    """Finds nothing wrong with any arguments."""
    return ""


class Taking:
    """Of one open session. `messages` were taken and not given out; `resolved` are decisions by call.

    `unfit` says what is wrong with edited arguments for a tool, "" for nothing.
    """

    def __init__(
        self, pen: WriterPen, mailbox: Mailbox, clock: Clock, unfit: Unfit = anything, again: Again | None = None
    ) -> None:
        state = pen.writer.state
        self._pen = pen
        self._clock = clock
        self._unfit = unfit
        self._again = again
        self.mailbox: Final = mailbox
        self.messages: deque[Received] = deque()
        self.resolved: dict[str, Resolved] = {}
        self.results: dict[str, tuple[int, ev.ToolResult]] = {}
        self.retried: set[int] = set()
        """Seq of the second intents that were taken: this owner performs those that run here."""
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
        for taken in (self.messages, self.resolved, self.results, self.retried, self.children, self.woken):
            taken.clear()

    @property
    def left_over(self) -> bool:
        """Whether something was taken that nobody was given: whoever waited for it had left before it came, while
        another step of the session still waited. Nothing more comes of it, so it is not to be waited for again."""
        given = (self.messages, self.resolved, self.results, self.retried, self.children, +self.woken)
        return self.cancelled is not None or any(given)

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
            taken = await take_all(self._pen, self.mailbox, self._clock, self._unfit, self._again)
        for seq, (body, _, ext) in taken:
            if isinstance(body, ev.MessageReceived):
                self._heard(Received(seq, body, ended_of(ext)))
            elif isinstance(body, ev.ApprovalResolved):
                self.resolved[body.call_id] = Resolved(seq, body, ext)
            elif isinstance(body, ev.TimerFired):
                self.woken[body.timer_id] += 1
            elif isinstance(body, ev.Escalated):
                self.escalated.add(body.call_id)
            elif isinstance(body, ev.ToolIntent):
                self.escalated.discard(body.call_id)
                self.retried.add(seq)
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


async def take_all(
    pen: WriterPen, mailbox: Mailbox, clock: Clock, unfit: Unfit = anything, again: Again | None = None
) -> list[tuple[int, Taken]]:
    """Events for everything that waits, appended in its order: (seq, event) each.

    Each is judged by the state after the ones before it, so a second answer to one question is refused.
    """
    out: list[tuple[int, Taken]] = []
    for one in mailbox.waiting():
        state = await pen.standing()
        if one.inbox_id.seq > state.inbox.get(one.inbox_id.source, -1):
            taken = _taken(pen, state, one, clock, unfit)
            if isinstance(taken.body, ev.ToolResult) and EXT_RETRY in one.ext:
                taken = await _retried(state, one, taken.body.call_id, again)
            seq = await pen.take(taken.body, one, turn=state.turn, cause=taken.cause, ext=taken.ext)
            out.append((seq, taken))
        mailbox.took(one)
    return out


def _taken(pen: WriterPen, state: State, one: Incoming, clock: Clock, unfit: Unfit) -> Taken:
    """The event of a record, of which nothing is left that may not be recorded."""
    if one.body is None:
        return _event(state, one, clock, unfit)
    try:
        one = one._replace(body=pen.writer.cleaned(one.body))
    except InvalidEvent as error:
        return _refusal(one, error.message)
    return _event(state, one, clock, unfit)


def _event(state: State, one: Incoming, clock: Clock, unfit: Unfit) -> Taken:
    body = one.body
    if state.ended and not isinstance(body, inbox.Annotation):
        return _refusal(one, "the trajectory has ended")
    if isinstance(body, inbox.Annotation):
        return Taken(body.event())
    if one.inbox_id.source.startswith(FROM) and one.tenant != state.tenant:
        return _refusal(one, "it comes from a trajectory of another tenant")
    if isinstance(body, inbox.Message):
        return Taken(ev.MessageReceived(peer=body.peer, role=body.role, message=body.message, about=body.about))
    if isinstance(body, inbox.Cancel):
        return Taken(ev.CancelRequested(by=body.by, reason=body.reason))
    if isinstance(body, inbox.Decision):
        return _decided(state, one, body, clock, unfit)
    if isinstance(body, inbox.Settlement):
        return _settled(state, one, body)
    if isinstance(body, inbox.Outcome):
        return _child_ended(state, one, body) if EXT_ENDED in one.ext else _came_out(state, one, body)
    if isinstance(body, inbox.TimerDue) and body.timer_id in state.timers:
        return Taken(ev.TimerFired(timer_id=body.timer_id))
    return _refusal(one, _REASONS.get(one.name, "nothing waits for it"))


def _decided(state: State, one: Incoming, body: inbox.Decision, clock: Clock, unfit: Unfit) -> Taken:
    """What a decision comes to, by the identity that came with it from the credential, and by the recorded request."""
    call = state.calls.get(body.call_id)
    if call is None or call.status is not CallStatus.ASKED or call.request is None:
        return _refusal(one, f"call {body.call_id} does not wait for a decision (any more)")
    request = call.request
    if state.status is TrajectoryStatus.CANCELLING:
        return _refusal(one, f"the trajectory is cancelled; call {body.call_id} is not made")
    if request.hash != body.request_hash:
        return _refusal(one, f"it answers another request than the one for call {body.call_id}")
    resolved = ev.ApprovalResolved(**body.model_dump())
    if body.choice is Choice.EXPIRE:
        if request.expires_at is None:
            return _refusal(one, f"the request about call {body.call_id} does not expire")
        if request.then:
            asked, ext = escalated(body.call_id, request, clock.now_us())
            return Taken(asked, request.seq, ext)
        return Taken(resolved)
    who = Approver.said(body.approver, one.ext)
    wrong = may_not(request.may_approve, request.requester_may, who, tenant=state.tenant, requester=requester_of(state))
    if wrong:
        return _refusal(one, f"about call {body.call_id}: {wrong}")
    if body.arguments is not None:
        wrong = unfit(call.tool, body.arguments.text) if body.arguments.whole else "they are too long"
        if wrong:
            return _refusal(one, f"the edited arguments are not taken: {wrong}")
    return Taken(resolved, ext=who.ext)


def requester_of(state: State) -> str | None:
    """On whose behalf a trajectory works."""
    return None if state.task is None else state.task.on_behalf_of


def _settled(state: State, one: Incoming, body: inbox.Settlement) -> Taken:
    call = state.calls.get(body.call_id)
    if call is None or call.status is not CallStatus.ESCALATED or call.hash != body.intent_hash:
        return _refusal(one, f"nobody was asked about call {body.call_id}")
    result = ev.ToolResult(call_id=body.call_id, status=body.status, output=body.output, settled=Settled.PERSON)
    return Taken(result, call.seq, {EXT_BY: body.by, EXT_REASON: body.reason})


async def _retried(state: State, one: Incoming, call_id: str, again: Again | None) -> Taken:
    """The second intent of a call that a person was asked about."""
    if again is None or state.status is TrajectoryStatus.CANCELLING:
        return _refusal(one, f"nothing is done again of what is cancelled: say what became of call {call_id}")
    call = state.calls[call_id]
    second = await again(call)
    if isinstance(second, str):
        return _refusal(one, f"call {call_id} cannot be done again: {second}")
    assert isinstance(one.body, inbox.Settlement)
    return Taken(second.intent, call.seq, {**second.ext, EXT_BY: one.body.by, EXT_REASON: one.body.reason})


def _came_out(state: State, one: Incoming, body: inbox.Outcome) -> Taken:
    """What a dispatcher says, or whoever answers for a tool that said `pending`.

    Of a readonly call it does not matter whether it happened, so nobody is asked.
    """
    call = state.calls.get(body.call_id)
    if call is None or call.status not in OPEN_INTENT or call.place is not Place.DISPATCH:
        return _refusal(one, f"call {body.call_id} is not open where calls are dispatched (any more)")
    if call.hash != body.intent_hash:
        return _refusal(one, f"it answers another intent than the one of call {body.call_id}")
    if body.status is ResultStatus.UNKNOWN and call.effect is not Effect.READONLY:
        if call.status is CallStatus.ESCALATED:
            return _refusal(one, f"a person is asked about call {body.call_id} already")
        tried = body.output.text[:TEXT_FIELD_CHARS_MAX]
        return Taken(ev.Escalated(call_id=body.call_id, tried=tried, asked=A_PERSON), call.seq)
    result = ev.ToolResult(
        call_id=body.call_id,
        status=body.status,
        output=body.output,
        settled=body.settled,
        duration_ms=body.duration_ms,
        attempts=body.slot,
    )
    return Taken(result, call.seq)


def _child_ended(state: State, one: Incoming, body: inbox.Outcome) -> Taken:
    child, ending = state.children.get(body.call_id), ended_of(one.ext)
    if child is None or child.hash != body.intent_hash or ending is None:
        return _refusal(one, f"no child run {body.call_id} is waited for (any more)")
    about = Ref(trajectory_id=state.trajectory_id, seq=child.seq)
    received = ev.MessageReceived(peer=body.call_id, role=Role.AGENT, message=body.output, about=about)
    return Taken(received, child.seq, {EXT_ENDED: ending.value})


def _refusal(one: Incoming, reason: str) -> Taken:
    """Of a Submit it says whose child was submitted."""
    refused = ev.InboxRefused(refused=one.inbox_id, kind=one.name, reason=reason[:TEXT_FIELD_CHARS_MAX])
    return Taken(refused, ext=spawn_ext(one.ext))


_REASONS: Final[Mapping[str, str]] = {
    "Submit": "the trajectory has a task already",
    "Retry": "the trajectory goes on already",
    "TimerDue": "there is no such timer",
}
