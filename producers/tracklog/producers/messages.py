"""Messages as a model saw them, from the events that hold them: the other way of `assembly` and of the importers.

TaskStarted, DriftCrossed   the system message with the prompt
MessageReceived             what was said, in the shape it had; from an inbox, its text
ModelReplied                the reply. A session shows it with the call ids that it gave, an import verbatim
ToolResult                  what the model was given of the output
Compacted                   the summary
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tracklog.infra.blobs import BlobStore
from tracklog.producers.bodies import whole_text
from tracklog.producers.cursor import came
from tracklog.producers.importers.shape import EXT_MESSAGE, content_value, reshaped
from tracklog.producers.importers.transcript import answer_message, spoken_message
from tracklog.producers.models import with_call_ids
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.values import BlobRef, Body, Driver, Role

__all__ = ["Messages"]


class Messages:
    """Of one record, with what it inherits. `take` its events in order, then ask for the messages of any of them."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._events: dict[tuple[str, int], Event] = {}
        self._imported: set[str] = set()
        self._replies: dict[tuple[str, str], int] = {}
        """By call, the seq of the reply that asks for it."""
        self._recorded: dict[tuple[str, str], tuple[str, str]] = {}
        """By call of an import, the id and the tool that the recording has."""
        self._built: dict[tuple[str, int], dict[str, Any]] = {}

    def take(self, event: Event) -> None:
        """Keeps an event, and nothing of its blobs."""
        own, body = event.envelope.trajectory_id, event.body
        self._events[own, event.envelope.seq] = event
        if isinstance(body, ev.TaskStarted) and body.driver is Driver.IMPORT:
            self._imported.add(own)
        elif isinstance(body, ev.ModelReplied):
            self._replies.update(((own, call.call_id), event.envelope.seq) for call in body.tool_calls)

    def at(self, trajectory_id: str, seq: int) -> dict[str, Any]:
        """The message that this event holds.

        Raises InvalidEvent for an event that was not taken, or holds none; BlobMissing, BlobAltered, BlobError.
        """
        key = trajectory_id, seq
        if key not in self._built:
            event = self._events.get(key)
            message = None if event is None else self.of(event)
            if message is None:
                what = "is not in this record" if event is None else f"is a {event.name}, which is no message"
                raise InvalidEvent(f"event {seq} of {trajectory_id!r} {what}")
            self._built[key] = message
        return self._built[key]

    def of(self, event: Event) -> dict[str, Any] | None:
        """The message that an event is, None for one that is none."""
        body = event.body
        if isinstance(body, ev.TaskStarted):
            return None if body.prompt_template is None else self._shaped(event, self._prompt(body.prompt_template))
        if isinstance(body, ev.DriftCrossed):
            return None if body.new_prompt is None else _system(self._blobs.get(body.new_prompt.hex()).decode())
        if isinstance(body, ev.MessageReceived):
            return self._heard(event, body)
        if isinstance(body, ev.ModelReplied):
            return self._reply(event.envelope.trajectory_id, body)
        if isinstance(body, ev.ToolResult):
            return self._result(event, body)
        if isinstance(body, ev.Compacted):
            return spoken_message(Role.USER, whole_text(body.summary, self._blobs))
        return None

    def _prompt(self, ref: BlobRef) -> dict[str, Any]:
        return _system(content_value(self._blobs.get(ref.hash.hex()).decode(), ref.media_type))

    def _heard(self, event: Event, body: ev.MessageReceived) -> dict[str, Any]:
        if came(event):
            return spoken_message(body.role, whole_text(body.message, self._blobs))
        return self._shaped(event, spoken_message(body.role, self._content(body.message)))

    def _reply(self, own: str, body: ev.ModelReplied) -> dict[str, Any]:
        message: dict[str, Any] = orjson.loads(whole_text(body.reply, self._blobs))
        if own not in self._imported:
            return with_call_ids(message, body.tool_calls)
        recorded = message.get("tool_calls") or ()
        for position, call in enumerate(body.tool_calls):
            call_id = recorded[position]["id"] if recorded else call.call_id
            self._recorded[own, call.call_id] = (call_id, call.tool)
        return message

    def _result(self, event: Event, body: ev.ToolResult) -> dict[str, Any]:
        own = event.envelope.trajectory_id
        if own not in self._imported:
            return {"role": "tool", "tool_call_id": body.call_id, "content": body.output.text}
        call = own, body.call_id
        if call not in self._recorded:
            self.at(own, self._replies[call])
        return self._shaped(event, answer_message(*self._recorded[call], self._content(body.output)))

    def _content(self, body: Body) -> object:
        return content_value(whole_text(body, self._blobs), body.media_type)

    def _shaped(self, event: Event, plain: Mapping[str, Any]) -> dict[str, Any]:
        return reshaped(plain, event.envelope.ext.get(EXT_MESSAGE, ""))


def _system(content: object) -> dict[str, Any]:
    return spoken_message(Role.SYSTEM, content)
