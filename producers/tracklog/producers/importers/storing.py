"""Which texts of a planned event go to the blob store, and whether they may."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from tracklog.infra.blobs import BlobStore, check_size
from tracklog.producers.bodies import body_of
from tracklog.producers.importers.plan import PlannedEvent
from tracklog.schemas import events as ev
from tracklog.schemas import limits
from tracklog.schemas.values import Body

ENVELOPE_BYTES: Final = 8 * 1024
"""Room left in an event for everything that is no body."""

_BODY_FIELDS: Final[Mapping[type[ev.EventBody], str]] = {
    ev.TaskStarted: "task",
    ev.Observed: "value",
    ev.MessageReceived: "message",
    ev.ModelReplied: "reply",
    ev.ToolIntent: "arguments",
    ev.ToolResult: "output",
    ev.TaskEnded: "result",
}


class Storing:
    """`limit` is how many bytes of a body may stay in its event."""

    def __init__(self, blobs: BlobStore, limit: int) -> None:
        self._blobs = blobs
        self._limit = limit

    def check(self, planned: Iterable[PlannedEvent]) -> None:
        """Raises BlobTooLarge when a text that must be stored is more than a blob can be. Stores nothing."""
        for one in planned:
            for text, _ in one.stores:
                check_size(len(text.encode()))
            _, whole = _body_in(one)
            if whole is not None and whole.size_bytes > self._room(one):
                check_size(whole.size_bytes)

    async def store(self, planned: PlannedEvent) -> ev.EventBody:
        """Puts the texts that must be in the blob store there, and returns the event that names them."""
        for text, media_type in planned.stores:
            await asyncio.to_thread(self._blobs.put, text.encode(), media_type=media_type)
        body = planned.body
        field, whole = _body_in(planned)
        if whole is None or whole.size_bytes <= self._room(planned):
            return body
        cut = await asyncio.to_thread(body_of, whole.text, self._blobs, self._room(planned), whole.media_type)
        return body.model_copy(update={field: cut})

    def _room(self, planned: PlannedEvent) -> int:
        """Bytes of a body that may stay in its event."""
        if self._limit <= limits.BODY_INLINE_BYTES_MAX:
            return self._limit
        calls = planned.body.tool_calls if isinstance(planned.body, ev.ModelReplied) else ()
        fixed = sum(len(call.arguments.encode()) for call in calls) + sum(map(len, planned.ext.values()))
        return min(self._limit, max(0, limits.EVENT_BYTES_MAX - ENVELOPE_BYTES - fixed))


def _body_in(planned: PlannedEvent) -> tuple[str, Body | None]:
    """The field of the event that holds a long text, and that text."""
    field = _BODY_FIELDS.get(type(planned.body), "")
    return field, getattr(planned.body, field) if field else None
