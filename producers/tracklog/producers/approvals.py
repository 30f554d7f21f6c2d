"""Held calls: asking, and what was decided (DESIGN §9).

A held call writes `ApprovalRequested` and leaves its session with ApprovalNeeded; nothing waits in memory. A decision
is an event that quotes the hash of the request. The next opening of the session goes on by it.
"""

from __future__ import annotations

import hashlib
from typing import Final

from tracklog.infra.clock import Clock
from tracklog.producers.pen import WriterPen
from tracklog.producers.policy import Decision
from tracklog.producers.producer import EventProducer
from tracklog.producers.record import Record
from tracklog.schemas import events as ev
from tracklog.schemas.errors import ApprovalNeeded, InvalidEvent
from tracklog.schemas.lifecycle import CallStatus
from tracklog.schemas.state import Call, State
from tracklog.schemas.values import Body, Choice, Driver, ToolCall

__all__ = ["EXPIRY", "Approvals", "decide_call", "expire_requests"]

EXPIRY: Final = "expiry"
"""Stands as the approver when nobody decided in time."""
_US: Final = 1_000_000


class Approvals:
    """Of one session."""

    def __init__(self, record: Record, clock: Clock) -> None:
        self._record = record
        self._clock = clock

    async def of(self, call: ToolCall, decision: Decision) -> ev.ApprovalResolved:
        """What was decided about a held call; asks once. Raises ApprovalNeeded until somebody has decided."""
        asked = f"the request to approve call {call.call_id!r}"
        if self._record.of_call(ev.ApprovalRequested, call.call_id, asked) is None:
            self._record.check_live(asked)
            await self._record.pen.confirm(await self._record.write(self._request(call, decision)))
        asked = f"the decision about call {call.call_id!r}"
        resolved = self._record.of_call(ev.ApprovalResolved, call.call_id, asked)
        if resolved is None:
            self._record.check_live(asked)
            taking = self._record.taking
            if taking is not None:
                await taking.look()
                if call.call_id in taking.resolved:
                    seq, body = taking.resolved[call.call_id]
                    self._record.strand.saw(seq)
                    return body
            raise ApprovalNeeded(
                f"call {call.call_id!r} of tool {call.tool!r} in trajectory {self._record.trajectory_id!r} is held "
                f"by {decision.rule!r}",
                hint="decide about it with decide_call(...), then open the session again",
            )
        return resolved.body

    def _request(self, call: ToolCall, decision: Decision) -> ev.ApprovalRequested:
        within_s = decision.expires_in_s
        return ev.ApprovalRequested(
            call_id=call.call_id,
            argument_hash=hashlib.sha256(call.arguments.encode("utf-8", "replace")).digest(),
            may_approve=decision.may_approve,
            expires_at=None if within_s is None else self._clock.now_us() + int(within_s * _US),
            reason=decision.reason,
        )


async def decide_call(
    producer: EventProducer,
    trajectory_id: str,
    call_id: str,
    *,
    approver: str,
    approve: bool,
    clock: Clock,
    reason: str = "",
    answer: str | None = None,
    driver: Driver = Driver.LIBRARY,
) -> None:
    """A person's decision about a held call. The session can be opened again after it.

    Refused, the model is given `reason`; `answer` instead of an approval is given to the model as the call's result,
    and the call is not made. Who `approver` really is must be known to whoever calls this. Raises InvalidEvent for a
    call that is not held, a person who may not decide, and a request that has expired; nothing is claimed then.
    """
    state = (await producer.prefetch([trajectory_id]))[trajectory_id]
    _check_may(state, call_id, approver, clock)
    writer = await producer.claim(trajectory_id, owner=approver, driver=driver, reason=f"decides call {call_id}")
    held = writer.state.calls.get(call_id)
    if held is None or held.status is not CallStatus.ASKED:
        await writer.release("nothing to decide")
        raise _not_held(trajectory_id, call_id, held)
    choice = Choice.ANSWER if answer is not None else Choice.APPROVE if approve else Choice.DENY
    body = _resolved(
        call_id, held, approver, choice, reason=reason, answer=None if answer is None else Body.of(answer, "text/plain")
    )
    pen = WriterPen(writer)
    await pen.append(body, turn=held.turn, cause=None)
    await pen.release("decided")


async def expire_requests(pen: WriterPen, state: State, clock: Clock) -> None:
    """Refuses held calls that nobody decided about in time."""
    now_us = clock.now_us()
    late = {
        call_id: call
        for call_id, call in state.pending_approvals.items()
        if call.status is CallStatus.ASKED and call.expires_at is not None and call.expires_at <= now_us
    }
    for call_id, call in late.items():
        body = _resolved(call_id, call, EXPIRY, Choice.EXPIRE, reason="nobody decided in time")
        await pen.append(body, turn=call.turn, cause=None)


def _resolved(
    call_id: str, held: Call, approver: str, choice: Choice, *, reason: str, answer: Body | None = None
) -> ev.ApprovalResolved:
    assert held.request_hash is not None
    return ev.ApprovalResolved(
        call_id=call_id,
        request_hash=held.request_hash,
        approver=approver,
        choice=choice,
        reason=reason,
        answer=answer,
    )


def _check_may(state: State, call_id: str, approver: str, clock: Clock) -> None:
    held = state.calls.get(call_id)
    if held is None or held.status is not CallStatus.ASKED:
        raise _not_held(state.trajectory_id, call_id, held)
    if held.may_approve and approver not in held.may_approve:
        raise InvalidEvent(
            f"{approver!r} may not decide about call {call_id!r} of {state.trajectory_id!r}",
            hint=f"those who may are {', '.join(held.may_approve)}",
        )
    if held.expires_at is not None and held.expires_at <= clock.now_us():
        raise InvalidEvent(
            f"the request to approve call {call_id!r} of {state.trajectory_id!r} has expired",
            hint="open its session: the model is told that the call was refused",
        )


def _not_held(trajectory_id: str, call_id: str, call: Call | None) -> InvalidEvent:
    stands = "not open" if call is None else call.status.value
    return InvalidEvent(
        f"call {call_id!r} of trajectory {trajectory_id!r} is {stands}; nobody is asked to approve it",
        hint="look at the trajectory for its pending approvals",
    )
