"""Calls that may have happened: which wait for a person to find out, and saying what became of one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response

from tracklog.consumers.api import bodies
from tracklog.consumers.api.routes import PAGE_MAX, CallId, Has, Id, Operator, Viewer, done, resource, tenant_of
from tracklog.consumers.api.seeing import Seeing, say_as_of
from tracklog.consumers.api.services import Services
from tracklog.consumers.api.tokens import Principal
from tracklog.consumers.waiting import row_of
from tracklog.infra.log.port import Position
from tracklog.processors.agenda import DOUBTED
from tracklog.schemas.errors import InputError

__all__ = ["router", "say_what_became"]

router = resource("escalations")


@router.get("/escalations")
async def list_escalations(
    reader: Seeing,
    response: Response,
    who: Viewer,
    tenant: Annotated[str | None, Query(max_length=200)] = None,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
) -> dict[str, Any]:
    """Calls that may have happened, the one that waits longest for a person first; in pages as `/approvals`."""
    answer = await reader.waiting(DOUBTED, tenant=tenant_of(who, tenant), cursor=cursor, limit=limit)
    page, as_of = answer.value, say_as_of(response, answer.as_of)
    return {"escalations": [row_of(one) for one in page.rows], "next": page.next, "total": page.total, "as_of": as_of}


@router.post("/trajectories/{trajectory_id}/calls/{call_id}/settlement", status_code=202)
async def settle(has: Has, who: Operator, trajectory_id: Id, call_id: CallId, body: bodies.Settle) -> dict[str, Any]:
    """Whether a call happened that only a person can find out about."""
    await has.state(who, trajectory_id)
    at = await say_what_became(has, who, trajectory_id, call_id, body.found, reason=body.reason, output=body.output)
    return done(has, who, body.found, trajectory_id, call_id, at=at)


async def say_what_became(
    has: Services,
    who: Principal,
    trajectory_id: str,
    call_id: str,
    found: str,
    *,
    reason: str,
    output: str,
    intent_hash: str | None = None,
) -> Position:
    """Puts it into the inbox. Raises InputError, and what `Answers` raises; with `intent_hash` also for another one."""
    about, intent = (trajectory_id, call_id), None if intent_hash is None else bytes.fromhex(intent_hash)
    if found == "retry":
        if output:
            raise InputError("a call that is to be made again has no output yet", hint="leave the output out")
        return await has.answers.retry(*about, person=who.name, reason=reason, intent_hash=intent)
    said = {"person": who.name, "output": output or reason, "reason": reason}
    return await has.answers.settle(*about, happened=found == "happened", intent_hash=intent, **said)
