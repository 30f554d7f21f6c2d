"""Held calls: asking, and what was decided (DESIGN §9).

A held call writes `ApprovalRequested` and leaves its session with ApprovalNeeded; nothing waits in memory. A decision
comes by the inbox (`answers.py` puts it there) and quotes the hash of the request. The next opening goes on by it. A
request that nobody answered in time is followed by one to who is asked next, in the same lane; after the last it is
refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from tracklog.infra.clock import Clock
from tracklog.producers.lanes import Lanes
from tracklog.producers.pen import WriterPen
from tracklog.producers.policy import Decision
from tracklog.producers.record import Record
from tracklog.producers.taking import Resolved
from tracklog.schemas import events as ev
from tracklog.schemas.approvals import escalated, terms_ext
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import ApprovalNeeded
from tracklog.schemas.lifecycle import TrajectoryStatus
from tracklog.schemas.state import State
from tracklog.schemas.values import Choice, OnExpiry, ToolCall

__all__ = ["EXPIRY", "Approvals", "expire_requests"]

EXPIRY: Final = "expiry"
"""Stands as the approver when nobody decided in time."""
_US: Final = 1_000_000


class Approvals:
    """Of one session."""

    def __init__(self, record: Record, clock: Clock) -> None:
        self._record = record
        self._clock = clock
        self._lanes = Lanes()

    def recall(self, events: Iterable[Event]) -> None:
        """Takes in which lanes the open requests of a record have."""
        for event in events:
            match event.body:
                case ev.ApprovalRequested(call_id=call_id):
                    self._lanes.recall(call_id, event.envelope.ext)
                case ev.ApprovalResolved(call_id=call_id):
                    self._lanes.free(call_id)

    async def of(self, call: ToolCall, decision: Decision, times: int = 0) -> Resolved:
        """What was decided about a held call; asks once. Raises ApprovalNeeded until somebody has decided.

        `times`: how often it was decided about before, and edited.
        """
        asked = f"the request to approve call {call.call_id!r}"
        if await self._record.of_call(ev.ApprovalRequested, call.call_id, asked, times) is None:
            self._record.check_live(asked)
            request = self._request(call, decision)
            terms = terms_ext(call.tool, decision.requester_may, decision.then)
            seq = await self._record.write(request, ext={**terms, **self._lanes.ext(call.call_id)})
            await self._record.pen.confirm(seq)
        asked = f"the decision about call {call.call_id!r}"
        resolved = await self._record.of_call(ev.ApprovalResolved, call.call_id, asked, times)
        if resolved is None:
            self._record.check_live(asked)
            taking = self._record.taking
            if taking is not None:
                await taking.look()
                self._record.check_live(asked)  # a cancel may be what came
                if call.call_id in taking.resolved:
                    taken = taking.resolved.pop(call.call_id)  # an edited call may be asked about again
                    self._record.strand.saw(taken.seq)
                    self._lanes.free(call.call_id)
                    return taken
            raise ApprovalNeeded(
                f"call {call.call_id!r} of tool {call.tool!r} in trajectory {self._record.trajectory_id!r} is held "
                f"by {decision.rule!r}",
                hint=f"decide: tracklog approvals approve {self._record.trajectory_id} {call.call_id} --as NAME (or "
                "Answers.answer), then open the session again; a worker does so itself",
            )
        return Resolved(resolved.seq, resolved.body, resolved.ext)

    def _request(self, call: ToolCall, decision: Decision) -> ev.ApprovalRequested:
        within_s = decision.expires_in_s
        return ev.ApprovalRequested(
            call_id=call.call_id,
            argument_hash=hashlib.sha256(call.arguments.encode("utf-8", "replace")).digest(),
            may_approve=decision.may_approve,
            expires_at=None if within_s is None else self._clock.now_us() + int(within_s * _US),
            on_expiry=OnExpiry.ESCALATE if decision.then else OnExpiry.DENY,
            reason=decision.reason,
        )


async def expire_requests(pen: WriterPen, state: State, clock: Clock) -> None:
    """Asks who is asked next about held calls that nobody decided about in time; after the last, refuses them.

    Of a trajectory that is cancelled no call is made any more, and nobody is asked.
    """
    if state.status is TrajectoryStatus.CANCELLING:
        return
    now_us = clock.now_us()
    late = {
        call_id: call
        for call_id, call in state.pending_approvals.items()
        if call.request is not None and call.request.expires_at is not None and call.request.expires_at <= now_us
    }
    for call_id, call in late.items():
        request = call.request
        assert request is not None
        if request.then:
            asked, ext = escalated(call_id, request, now_us)
            await pen.append(asked, turn=call.turn, cause=request.seq, ext=ext)
            continue
        body = ev.ApprovalResolved(
            call_id=call_id,
            request_hash=request.hash,
            approver=EXPIRY,
            choice=Choice.EXPIRE,
            reason="nobody decided in time",
        )
        await pen.append(body, turn=call.turn, cause=None)
