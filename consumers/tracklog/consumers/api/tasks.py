"""Giving tasks to workers and reaching the trajectories they run; what became of calls whose tools answer later."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import HTTPException

from tracklog.consumers.api import bodies
from tracklog.consumers.api.routes import TEXT, Has, Id, Operator, done, resource
from tracklog.producers.bodies import delivered_body
from tracklog.producers.tool_run import fitted
from tracklog.schemas import inbox, limits
from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.lifecycle import OPEN_INTENT
from tracklog.schemas.state import Call, State
from tracklog.schemas.values import Body, InboxId, Place, ResultStatus, Settled

__all__ = ["router"]

router = resource("tasks")


def _awaiting(state: State, call_id: str) -> Call | None:
    """The call when an outcome of it can still be taken."""
    call = state.calls.get(call_id)
    return call if call is not None and call.status in OPEN_INTENT and call.place is Place.DISPATCH else None


@router.put("/trajectories/{trajectory_id}/task", status_code=202)
async def submit(has: Has, who: Operator, trajectory_id: Id, body: bodies.Submit) -> dict[str, Any]:
    """Gives a task to the workers. The same task again is the same; another one under this id is refused."""
    if not who.sees(body.tenant):
        raise HTTPException(403, f"this token is not for tenant {body.tenant!r}")
    client = has.client_of(who, body.tenant)
    asker = None if has.tokens is None else who.name
    where = await has.known(who, trajectory_id)
    labels, tenant = body.labels, body.tenant
    placed = await client.place(
        body.agent, body.task, id=trajectory_id, labels=labels, tenant=tenant, on_behalf_of=asker, where=where
    )
    return done(has, who, "submit", trajectory_id, at=placed.position)


@router.post("/trajectories/{trajectory_id}/messages", status_code=202)
async def send(has: Has, who: Operator, trajectory_id: Id, body: bodies.Said) -> dict[str, Any]:
    """Says something to the agent: once for each `client_id`, where there is one."""
    state = await has.state(who, trajectory_id)
    at = await has.client_of(who, state.tenant).send(trajectory_id, body.text, client_id=body.client_id)
    return done(has, who, "send", trajectory_id, at=at)


@router.post("/trajectories/{trajectory_id}/cancel", status_code=202)
async def cancel(has: Has, who: Operator, trajectory_id: Id, body: bodies.Cancel) -> dict[str, Any]:
    """Asks it to end at its next step."""
    state = await has.state(who, trajectory_id)
    at = await has.client_of(who, state.tenant).cancel(trajectory_id, body.reason)
    return done(has, who, "cancel", trajectory_id, at=at)


@router.post("/trajectories/{trajectory_id}/retry", status_code=202)
async def retry(has: Has, who: Operator, trajectory_id: Id, body: bodies.Cancel) -> dict[str, Any]:
    """Lets one that was stopped go on."""
    state = await has.state(who, trajectory_id)
    at = await has.client_of(who, state.tenant).retry(trajectory_id, body.reason)
    return done(has, who, "retry", trajectory_id, at=at)


@router.post("/trajectories/{trajectory_id}/outcomes", status_code=202)
async def put_outcome(has: Has, who: Operator, trajectory_id: Id, body: bodies.Outcome) -> dict[str, Any]:
    """What became of a dispatched call whose tool said that it answers later; the first one that is taken counts.

    The model is given the first 64 KiB of the output; the whole is kept.
    """
    state = await has.state(who, trajectory_id)
    call = _awaiting(state, body.call_id)
    if call is None:  # what is folded may be behind the log
        state = await has.state_in_log(trajectory_id)
        call = _awaiting(state, body.call_id)
    if call is None:
        where = "the trajectory has ended" if state.ended else "it is not open where calls are dispatched (any more)"
        raise InvalidEvent(
            f"nobody waits for the outcome of call {body.call_id!r} of {trajectory_id!r}: {where}",
            hint=f"see: tracklog show {trajectory_id} --call {body.call_id}",
        )
    output = body.output if has.redaction is None else has.redaction.text(body.output)
    given = fitted(output, limits.BODY_INLINE_BYTES_MAX)
    whole = given == output
    outcome = inbox.Outcome(
        call_id=body.call_id,
        intent_hash=call.hash,
        slot=1,
        status=ResultStatus(body.status),
        output=Body.of(given, TEXT)
        if whole
        else await asyncio.to_thread(delivered_body, given, output, has.blobs, TEXT),
        settled=Settled.DIRECT,
    )
    inbox_id = InboxId(source=f"outcome/{call.lane}", seq=call.seq)  # the call's own: of two, one is taken
    at = await has.poster.post(trajectory_id, outcome, inbox_id=inbox_id, tenant=state.tenant)
    return done(has, who, "outcome", trajectory_id, body.call_id, at=at)
