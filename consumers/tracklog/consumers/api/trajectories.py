"""Looking at trajectories: the list, one's state, its events in pages and as a stream."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import Header, HTTPException, Query
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from tracklog.consumers.api.events import EventStream, events_of
from tracklog.consumers.api.relay import TokenStream
from tracklog.consumers.api.routes import PAGE_MAX, Has, Id, Viewer, resource, tenant_of
from tracklog.consumers.api.services import Services
from tracklog.consumers.listing import listed
from tracklog.consumers.read_filter import Filter
from tracklog.schemas.state import dump_state

__all__ = ["router"]

router = resource("trajectories")


@router.get("/trajectories")
def list_trajectories(
    has: Has,
    who: Viewer,
    tenant: Annotated[str | None, Query(max_length=200)] = None,
    status: Annotated[str | None, Query(max_length=50)] = None,
    cursor: Annotated[str | None, Query(max_length=300)] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
) -> dict[str, Any]:
    """Newest first. `next` is the cursor of the page behind this one."""
    wanted = Filter(tenant=tenant_of(who, tenant), status=status)
    page = listed(has.reader, wanted, None, cursor=cursor, limit=limit)
    as_of = {str(partition): offset for partition, offset in has.reader.as_of().items()}
    return {"trajectories": page.rows, "next": page.next, "as_of": as_of}


@router.get("/trajectories/{trajectory_id}")
async def show_trajectory(has: Has, who: Viewer, trajectory_id: Id) -> Response:
    """Its state."""
    return Response(dump_state(await has.state(who, trajectory_id)), media_type="application/json")


@router.get("/trajectories/{trajectory_id}/events")
async def list_events(
    has: Has,
    who: Viewer,
    trajectory_id: Id,
    after: Annotated[int, Query(ge=-1, lt=2**53)] = -1,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
) -> Response:
    """Its accepted events behind a seq; `next` is the `after` of the page behind this one."""
    await has.state(who, trajectory_id)
    found = await run_in_threadpool(events_of, has.log, has.topics.events, trajectory_id, after, limit + 1)
    page = found[:limit]
    behind = page[-1]["seq"] if len(found) > limit else None
    return Response(orjson.dumps({"events": page, "next": behind}), media_type="application/json")


@router.get(
    "/trajectories/{trajectory_id}/stream",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def stream_events(
    has: Has, who: Viewer, trajectory_id: Id, last_event_id: Annotated[str | None, Header()] = None
) -> Response:
    """Server-sent events up to its end; `Last-Event-ID` goes on behind one."""
    await has.state(who, trajectory_id)
    after = int(last_event_id) if last_event_id is not None and last_event_id.isdecimal() else -1
    topic = has.topics.events
    return _open(has, EventStream(has.log, topic, trajectory_id, min(after, 2**53), lambda: has.stopping))


@router.get(
    "/trajectories/{trajectory_id}/tokens",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def stream_tokens(has: Has, who: Viewer, trajectory_id: Id) -> Response:
    """Its next reply while the model gives it, as server-sent events: started, text, restarted when the call is made
    again and what came before is void, lost. It ends with `replied`, the reply that the log has, or with `ended`."""
    await has.state(who, trajectory_id)
    return _open(has, TokenStream(has.hub, has.log, has.topics.events, trajectory_id, lambda: has.stopping))


def _open(has: Services, stream: Response) -> Response:
    """Raises HTTPException 503 when as many are open as may be."""
    if has.streams >= has.streams_max:
        raise HTTPException(503, f"{has.streams_max} streams are open", {"Retry-After": "5"})
    return _Counted(has, stream)


class _Counted(Response):
    """A stream that is counted while it is open."""

    def __init__(self, has: Services, stream: Response) -> None:
        super().__init__()
        self._has = has
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._has.streams += 1
        try:
            await self._stream(scope, receive, send)
        finally:
            self._has.streams -= 1
