"""Calls that may have happened: which wait for a person to find out, and saying what became of one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from tracklog.consumers.api import bodies
from tracklog.consumers.api.routes import PAGE_MAX, CallId, Has, Id, Operator, Viewer, done, resource, tenant_of
from tracklog.consumers.api.services import Services
from tracklog.consumers.api.tokens import Principal
from tracklog.consumers.waiting import as_of, row_of
from tracklog.processors.agenda import DOUBTED
from tracklog.schemas.errors import InputError

__all__ = ["router", "say_what_became"]

router = resource("escalations")


@router.get("/escalations")
def list_escalations(
    has: Has,
    who: Viewer,
    tenant: Annotated[str | None, Query(max_length=200)] = None,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
) -> dict[str, Any]:
    """Calls that may have happened, the one that waits longest for a person first; in pages as `/approvals`."""
    page = has.queue.page(DOUBTED, tenant=tenant_of(who, tenant), cursor=cursor, limit=limit)
    return {
        "escalations": [row_of(one) for one in page.rows],
        "next": page.next,
        "total": page.total,
        "as_of": as_of(page),
    }


@router.post("/trajectories/{trajectory_id}/calls/{call_id}/settlement", status_code=202)
async def settle(has: Has, who: Operator, trajectory_id: Id, call_id: CallId, body: bodies.Settle) -> dict[str, str]:
    """Whether a call happened that only a person can find out about."""
    await has.state(who, trajectory_id)
    await say_what_became(has, who, trajectory_id, call_id, body.found, reason=body.reason, output=body.output)
    return done(has, who, body.found, trajectory_id, call_id)


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
) -> None:
    """Puts it into the inbox. Raises InputError, and what `Answers` raises; with `intent_hash` also for another one."""
    about, intent = (trajectory_id, call_id), None if intent_hash is None else bytes.fromhex(intent_hash)
    if found == "retry":
        if output:
            raise InputError("a call that is to be made again has no output yet", hint="leave the output out")
        await has.answers.retry(*about, person=who.name, reason=reason, intent_hash=intent)
        return
    happened, told = found == "happened", output or reason
    await has.answers.settle(*about, person=who.name, happened=happened, output=told, reason=reason, intent_hash=intent)
