"""Calls that may have happened: which wait for a person to find out, and saying what became of one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from tracklog.consumers.api import bodies
from tracklog.consumers.api.routes import PAGE_MAX, CallId, Has, Id, Operator, Viewer, done, resource, tenant_of
from tracklog.consumers.listing import listed
from tracklog.consumers.read_filter import Filter

__all__ = ["router"]

router = resource("escalations")


@router.get("/escalations")
def list_escalations(
    has: Has, who: Viewer, tenant: Annotated[str | None, Query(max_length=200)] = None
) -> dict[str, Any]:
    """Trajectories with a call that may have happened, newest first."""
    wanted = Filter(tenant=tenant_of(who, tenant), status="in doubt")
    page = listed(has.reader, wanted, None, cursor=None, limit=PAGE_MAX)
    return {"trajectories": page.rows, "next": page.next}


@router.post("/trajectories/{trajectory_id}/calls/{call_id}/settlement", status_code=202)
async def settle(has: Has, who: Operator, trajectory_id: Id, call_id: CallId, body: bodies.Settle) -> dict[str, str]:
    """Whether a call happened that only a person can find out about."""
    await has.state(who, trajectory_id)
    await has.answers.settle(
        trajectory_id, call_id, person=who.name, happened=body.happened, output=body.output, reason=body.reason
    )
    return done(has, who, "settle", trajectory_id, call_id)
