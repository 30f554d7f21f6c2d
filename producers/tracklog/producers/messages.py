"""Messages as a model saw them, from the events that hold them: the other way of `assembly` and of the importers.

TaskStarted, DriftCrossed   the system message with the prompt
MessageReceived             what was said, in the shape it had; from an inbox, its text
ModelReplied                the reply. A session shows it with the call ids that it gave, an import verbatim
ToolResult                  what the model was given of the output
Compacted                   the summary
"""

from __future__ import annotations

from typing import Any, Final, TypeGuard

import orjson

from tracklog.infra.blobs import BlobStore
from tracklog.producers.bodies import whole_text
from tracklog.producers.cursor import came
from tracklog.producers.importers.rebuild import Retelling
from tracklog.producers.importers.shape import EXT_MESSAGE, content_value, reshaped
from tracklog.producers.importers.transcript import spoken_message
from tracklog.producers.models import with_call_ids
from tracklog.producers.whereabouts import RECORDED
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InvalidEvent, TracklogError
from tracklog.schemas.values import Body, Role

__all__ = ["Messages"]


_OF_ANOTHER_WRITER: Final = (ValueError, LookupError, TypeError, AttributeError)
"""What reading comes to of events that a program wrote by itself: any text may stand in them."""


class Messages:
    """Of one record, with what it inherits. `take` its events in order, then ask for the messages of any of them."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._events: dict[tuple[str, int], Event] = {}
        self._imported: dict[str, Retelling] = {}
        self._replies: dict[tuple[str, str], int] = {}
        """By call, the seq of the reply that asks for it."""
        self._built: dict[tuple[str, int], dict[str, Any]] = {}

    def take(self, event: Event) -> None:
        """Keeps an event, and nothing of its blobs."""
        own, body = event.envelope.trajectory_id, event.body
        self._events[own, event.envelope.seq] = event
        if isinstance(body, ev.TaskStarted) and body.driver in RECORDED:
            self._imported[own] = Retelling(self._blobs)
        elif isinstance(body, ev.ModelReplied):
            self._replies.update(((own, call.call_id), event.envelope.seq) for call in body.tool_calls)

    def event(self, trajectory_id: str, seq: int) -> Event | None:
        """An event that was taken."""
        return self._events.get((trajectory_id, seq))

    def at(self, trajectory_id: str, seq: int) -> dict[str, Any]:
        """The message that this event holds.

        Raises InvalidEvent for an event that was not taken, or holds none; BlobMissing, BlobAltered, BlobError.
        """
        key = trajectory_id, seq
        if key not in self._built:
            event = self._events.get(key)
            if event is None:
                raise InvalidEvent(f"event {seq} of {trajectory_id!r} is not in this record")
            try:
                message = self._of(event)
            except _OF_ANOTHER_WRITER as error:
                if isinstance(error, TracklogError):
                    raise
                raise InvalidEvent(
                    f"event {seq} of {trajectory_id!r} holds no message as sessions write them"
                ) from error
            if not _is_message(message):
                raise InvalidEvent(f"event {seq} of {trajectory_id!r} is a {event.name} that is no message")
            self._built[key] = message
        return self._built[key]

    def _of(self, event: Event) -> Any:
        """The message that an event is, None for one that is none."""
        own, body = event.envelope.trajectory_id, event.body
        if own in self._imported:
            if isinstance(body, ev.ToolResult):
                self.at(own, self._replies[own, body.call_id])  # which says what the recording calls it
            return self._imported[own].message(event)
        if isinstance(body, ev.TaskStarted):
            return None if body.prompt_template is None else self._system(body.prompt_template.hash)
        if isinstance(body, ev.DriftCrossed):
            return None if body.new_prompt is None else self._system(body.new_prompt)
        if isinstance(body, ev.MessageReceived):
            return self._heard(event, body)
        if isinstance(body, ev.ModelReplied):
            return with_call_ids(orjson.loads(self._text(body.reply)), body.tool_calls)
        if isinstance(body, ev.ToolResult):
            return {"role": "tool", "tool_call_id": body.call_id, "content": body.output.text}
        if isinstance(body, ev.Compacted):
            return spoken_message(Role.USER, self._text(body.summary))
        return None

    def _system(self, prompt: bytes) -> dict[str, Any]:
        return spoken_message(Role.SYSTEM, self._blobs.get(prompt.hex()).decode())

    def _heard(self, event: Event, body: ev.MessageReceived) -> dict[str, Any]:
        text = self._text(body.message)
        if came(event):
            return spoken_message(body.role, text)
        plain = spoken_message(body.role, content_value(text, body.message.media_type))
        return reshaped(plain, event.envelope.ext.get(EXT_MESSAGE, ""))

    def _text(self, body: Body) -> str:
        return whole_text(body, self._blobs)


def _is_message(value: Any) -> TypeGuard[dict[str, Any]]:
    """As the hash of a context takes it."""
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return False
    calls = value.get("tool_calls") or []
    return isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
