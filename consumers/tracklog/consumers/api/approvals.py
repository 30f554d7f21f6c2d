"""Held calls: which wait for somebody, and deciding about one."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import Query

from tracklog.consumers.api import bodies
from tracklog.consumers.api.routes import PAGE_MAX, Approver, CallId, Has, Id, Viewer, done, resource, tenant_of
from tracklog.consumers.api.services import Services
from tracklog.infra.redis_script import ask
from tracklog.processors.agenda import ASKED, NAME, VERSION, Entry, entry_of
from tracklog.processors.store_keys import StoreKeys
from tracklog.schemas.values import Choice

__all__ = ["router"]

router = resource("approvals")


@router.get("/approvals")
def list_approvals(
    has: Has, who: Viewer, tenant: Annotated[str | None, Query(max_length=200)] = None
) -> dict[str, Any]:
    """Held calls that wait for somebody, the one that waits longest first."""
    only = tenant_of(who, tenant)
    found = [one for one in _asked(has) if only in (None, one.tenant)]
    return {"approvals": [_shown(one) for one in sorted(found, key=lambda one: one.asked_ms)]}


@router.post("/trajectories/{trajectory_id}/calls/{call_id}/decision", status_code=202)
async def decide(has: Has, who: Approver, trajectory_id: Id, call_id: CallId, body: bodies.Decide) -> dict[str, str]:
    """Decides about a held call: the first decision in the inbox counts."""
    await has.state(who, trajectory_id)
    await has.answers.answer(
        trajectory_id,
        call_id,
        who=who.approver,
        choice=Choice(body.choice),
        reason=body.reason,
        answer=body.answer,
        arguments=None if body.arguments is None else orjson.dumps(body.arguments).decode(),
        request_hash=None if body.request_hash is None else bytes.fromhex(body.request_hash),
    )
    return done(has, who, body.choice.value, trajectory_id, call_id)


def _asked(has: Services) -> list[Entry]:
    keys = StoreKeys(has.topics.prefix, NAME, VERSION)
    partitions = has.log.partition_count(has.topics.events)
    commands = [("ZRANGE", keys.key(partition, ASKED), 0, PAGE_MAX - 1) for partition in range(partitions)]
    return [entry_of(member) for members in ask(has.client, commands) for member in members]


def _shown(one: Entry) -> dict[str, Any]:
    return {
        "trajectory_id": one.trajectory_id,
        "tenant": one.tenant,
        "call_id": one.name,
        "request_hash": one.hash,
        "asked_ms": one.asked_ms,
        "expires_us": one.due_us,
    }
