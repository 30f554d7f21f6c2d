"""What happens in all trajectories, as one stream of server-sent events that can be resumed.

id: WzUsN10           the place behind it in the log; sent back as `Last-Event-ID`, the stream goes on there
event: ToolResult
data: {...}           as `tracklog watch --events --json` writes it

While nothing comes, a sign of life has an id too: the place moves on over what was not asked for.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Final

import orjson
from fastapi import Header, Query
from fastapi.responses import Response

from tracklog.consumers.api.room import check_room, counted
from tracklog.consumers.api.routes import Has, Viewer, resource, tenant_of
from tracklog.consumers.api.streams import ServerSent
from tracklog.consumers.read_filter import checked_status
from tracklog.consumers.watching import Token, Wanted, Watch, standings_of, start_of, types_of, watched_map
from tracklog.schemas.errors import TracklogError

__all__ = ["router"]

TOKEN_CHARS_MAX: Final = 8000
NAMES_MAX: Final = 50

router = resource("events")


@router.get(
    "/events/stream",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def stream_all(
    has: Has,
    who: Viewer,
    tenant: Annotated[str | None, Query(max_length=200)] = None,
    type: Annotated[list[str] | None, Query(max_length=NAMES_MAX, description="Only these events; repeatable")] = None,
    agent: Annotated[list[str] | None, Query(max_length=NAMES_MAX, description="Only of these agents")] = None,
    status: Annotated[
        list[str] | None, Query(max_length=NAMES_MAX, description="Only of trajectories that stand so with the event")
    ] = None,
    start: Annotated[
        str, Query(alias="from", max_length=200, description="end, beginning, an ISO 8601 time, PARTITION:OFFSET[,...]")
    ] = "end",
    last_event_id: Annotated[str | None, Header(max_length=TOKEN_CHARS_MAX)] = None,
) -> Response:
    """Server-sent events of all trajectories that the token may see: accepted events only, each trajectory in its
    order, effects behind their causes. `Last-Event-ID` goes on behind an event, and then `from` does not count."""
    check_room(has)
    only = tenant_of(who, tenant)
    wanted = Wanted(
        types=types_of(type or ()),
        tenants=frozenset() if only is None else frozenset((only,)),
        agents=frozenset(agent or ()),
        statuses=frozenset(checked_status(one) or "" for one in status or ()),
    )
    place = start_of(start) if last_event_id is None else Token.of(last_event_id)
    watch = Watch(has.log, has.topics.events, start=place, wanted=wanted, standings=standings_of(has.reader))
    await watch.__aenter__()
    return counted(has, AllEvents(watch, lambda: has.stopping))


class AllEvents(ServerSent):
    """Closes the stream it was given."""

    def __init__(self, watch: Watch, stopping: Callable[[], bool]) -> None:
        super().__init__(stopping)
        self._watch = watch

    async def frames(self) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                found = await self._watch.batch()
                if not found:
                    yield b""
                for one in found:
                    data = orjson.dumps(watched_map(one))
                    yield b"id: %s\nevent: %s\ndata: %s\n\n" % (_text(one.token), one.event.name.encode(), data)
        except TracklogError as error:
            yield b"event: error\ndata: %s\n\n" % orjson.dumps({"error": error.message, "hint": error.hint})
        finally:
            self._watch.close()

    def beat(self) -> bytes:
        return b": still here\nid: %s\n\n" % _text(self._watch.token)


def _text(token: Token) -> bytes:
    return str(token).encode()
