"""Held calls: which wait for somebody, and deciding about one."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import Query, Response

from tracklog.consumers.api import bodies
from tracklog.consumers.api.routes import PAGE_MAX, Approver, CallId, Has, Id, Viewer, done, resource, tenant_of
from tracklog.consumers.api.seeing import Seeing, say_as_of
from tracklog.consumers.waiting import row_of
from tracklog.processors.agenda import ASKED
from tracklog.schemas.values import Choice

__all__ = ["router"]

router = resource("approvals")


@router.get("/approvals")
async def list_approvals(
    reader: Seeing,
    response: Response,
    who: Viewer,
    tenant: Annotated[str | None, Query(max_length=200)] = None,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
) -> dict[str, Any]:
    """Held calls that wait for somebody, the one that waits longest first; `next` is the cursor of the page behind
    this one, `total` how many there are."""
    answer = await reader.waiting(ASKED, tenant=tenant_of(who, tenant), cursor=cursor, limit=limit)
    page, as_of = answer.value, say_as_of(response, answer.as_of)
    return {"approvals": [row_of(one) for one in page.rows], "next": page.next, "total": page.total, "as_of": as_of}


@router.post("/trajectories/{trajectory_id}/calls/{call_id}/decision", status_code=202)
async def decide(has: Has, who: Approver, trajectory_id: Id, call_id: CallId, body: bodies.Decide) -> dict[str, Any]:
    """Decides about a held call: the first decision in the inbox counts."""
    await has.state(who, trajectory_id)
    at = await has.answers.answer(
        trajectory_id,
        call_id,
        who=who.approver,
        choice=Choice(body.choice),
        reason=body.reason,
        answer=body.answer,
        arguments=None if body.arguments is None else orjson.dumps(body.arguments).decode(),
        request_hash=None if body.request_hash is None else bytes.fromhex(body.request_hash),
    )
    return done(has, who, body.choice.value, trajectory_id, call_id, at=at)
