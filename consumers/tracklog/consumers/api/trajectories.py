"""Looking at trajectories: the list, one's state, its events in pages and as a stream."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import Header, Query
from fastapi.responses import Response

from tracklog.consumers.api.events import EventStream
from tracklog.consumers.api.relay import TokenStream
from tracklog.consumers.api.room import counted
from tracklog.consumers.api.routes import PAGE_MAX, Has, Id, Viewer, resource, tenant_of
from tracklog.consumers.api.seeing import Seeing, as_of_headers, say_as_of
from tracklog.consumers.event_json import event_map
from tracklog.consumers.listing import listed, parse_labels, parse_time
from tracklog.consumers.read_filter import Filter, checked_status
from tracklog.schemas.errors import InputError
from tracklog.schemas.state import dump_state

__all__ = ["router"]

router = resource("trajectories")


@router.get("/trajectories")
async def list_trajectories(
    reader: Seeing,
    response: Response,
    who: Viewer,
    tenant: Annotated[str | None, Query(max_length=200)] = None,
    status: Annotated[str | None, Query(max_length=50)] = None,
    tool: Annotated[str | None, Query(max_length=200, description="One that it called")] = None,
    model: Annotated[str | None, Query(max_length=200, description="Asked for or served")] = None,
    label: Annotated[list[str], Query(max_length=20, description="NAME=VALUE; again for more")] = [],  # noqa: B006
    since: Annotated[str | None, Query(max_length=50, description="Last append at or after (ISO 8601, UTC)")] = None,
    until: Annotated[str | None, Query(max_length=50, description="Last append before")] = None,
    cursor: Annotated[str | None, Query(max_length=300)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
) -> dict[str, Any]:
    """Newest first; all conditions hold. `next` is the cursor of the page behind this one."""
    wanted = Filter(
        tenant=tenant_of(who, tenant),
        status=checked_status(status),
        tool=tool,
        model=model,
        labels=parse_labels(label, "label="),
        since_ms=parse_time("since", since),
        until_ms=parse_time("until", until),
    )
    found = await listed(reader, wanted, None, cursor=cursor, limit=limit)
    as_of = say_as_of(response, found.as_of)
    return {"trajectories": found.value.rows, "next": found.value.next, "as_of": as_of}


@router.get("/trajectories/{trajectory_id}")
async def show_trajectory(has: Has, reader: Seeing, who: Viewer, trajectory_id: Id) -> Response:
    """Its state. How far that is folded is in the header `Tracklog-As-Of`."""
    found = await has.answer(who, trajectory_id, reader)
    return Response(dump_state(found.value), headers=as_of_headers(found.as_of), media_type="application/json")


@router.get("/trajectories/{trajectory_id}/events")
async def list_events(
    has: Has,
    reader: Seeing,
    who: Viewer,
    trajectory_id: Id,
    after: Annotated[int, Query(ge=-1, lt=2**53)] = -1,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
) -> Response:
    """Its accepted events behind a seq: from Redis where it keeps them all, else by a scan of its partition. `next` is
    the `after` of the page behind this one, null at the end."""
    await has.state(who, trajectory_id)
    answer = await reader.events(trajectory_id, after_seq=after, limit=limit + 1)
    page = [event_map(event, record) for event, record in answer.value[:limit]]
    found = {
        "events": page,
        "next": page[-1]["seq"] if len(answer.value) > limit else None,
        "as_of": answer.as_of.as_map(),
    }
    return Response(orjson.dumps(found), headers=as_of_headers(answer.as_of), media_type="application/json")


@router.get(
    "/trajectories/{trajectory_id}/stream",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def stream_events(
    has: Has, who: Viewer, trajectory_id: Id, last_event_id: Annotated[str | None, Header(max_length=20)] = None
) -> Response:
    """Server-sent events up to its end; `Last-Event-ID` goes on behind one."""
    await has.state(who, trajectory_id)
    after = -1 if last_event_id is None else _seq_of(last_event_id)
    return counted(has, EventStream(has.log, has.topics.events, trajectory_id, after, lambda: has.stopping))


def _seq_of(last_event_id: str) -> int:
    if not (last_event_id.isascii() and last_event_id.isdecimal()):
        raise InputError(
            f"Last-Event-ID {last_event_id!r} is no seq of an event",
            hint="send the `id` of the last event that came, or leave it out to begin with the first",
        )
    return int(last_event_id)


@router.get(
    "/trajectories/{trajectory_id}/tokens",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def stream_tokens(has: Has, who: Viewer, trajectory_id: Id) -> Response:
    """Its next reply while the model gives it, as server-sent events: started, text, restarted when the call is made
    again and what came before is void, lost. It ends with `replied`, the reply that the log has, or with `ended`."""
    await has.state(who, trajectory_id)
    return counted(has, TokenStream(has.hub, has.log, has.topics.events, trajectory_id, lambda: has.stopping))
