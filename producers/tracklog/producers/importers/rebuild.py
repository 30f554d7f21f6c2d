"""From the events of an imported run back to its record: the proof that nothing was lost.

Reads only accepted events and the blob store. The result equals the JSON object that was imported, the
order of its keys aside.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from tracklog.infra.blobs import BlobStore
from tracklog.producers.bodies import whole_text
from tracklog.producers.importers.plan import RECORDING
from tracklog.producers.importers.record import Record, record_of
from tracklog.producers.importers.shape import EXT_MESSAGE, NO_MESSAGE, content_value, reshaped
from tracklog.producers.importers.transcript import answer_message, spoken_message
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError
from tracklog.schemas.values import BlobRef, Body, Role


def rebuild_record(events: Iterable[Event], blobs: BlobStore) -> Record:
    """The record that was imported. Raises InputError for events of no import, and what reading a blob raises."""
    retelling, recording = Retelling(blobs), None
    messages = []
    for event in events:
        message = retelling.message(event)
        if message is not None:
            messages.append(message)
        if isinstance(event.body, ev.Observed) and event.body.name == RECORDING:
            recording = whole_text(event.body.value, blobs)
    if recording is None:
        raise InputError("these events are of no import", hint="only an imported run has a recording")
    return record_of(recording, messages)


class Retelling:
    """The messages of an imported run as they were recorded, while its events are read in order."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._calls: dict[str, tuple[str, str]] = {}

    def message(self, event: Event) -> dict[str, Any] | None:
        """The message that an event carries, None for one that carries none."""
        return self.told(event.body, event.envelope.ext.get(EXT_MESSAGE, ""))

    def told(self, body: ev.EventBody | None, shape: str) -> dict[str, Any] | None:
        """The same from the body of an event, and the shape in its `ext`."""
        plain = self._plain(body) if shape != NO_MESSAGE else None
        return None if plain is None else reshaped(plain, shape)

    def _plain(self, body: ev.EventBody | None) -> dict[str, Any] | None:
        if isinstance(body, ev.TaskStarted) and body.prompt_template is not None:
            return spoken_message(Role.SYSTEM, self._prompt(body.prompt_template))
        if isinstance(body, ev.MessageReceived):
            return spoken_message(body.role, self._content(body.message))
        if isinstance(body, ev.ModelReplied):
            return self._reply(body)
        if isinstance(body, ev.ToolResult):
            return answer_message(*self._calls[body.call_id], self._content(body.output))
        return None

    def _reply(self, body: ev.ModelReplied) -> dict[str, Any]:
        message: dict[str, Any] = orjson.loads(whole_text(body.reply, self._blobs))
        recorded = message.get("tool_calls") or ()
        for position, call in enumerate(body.tool_calls):
            call_id = recorded[position]["id"] if recorded else call.call_id
            self._calls[call.call_id] = (call_id, call.tool)
        return message

    def _prompt(self, ref: BlobRef) -> object:
        return content_value(self._blobs.get(ref.hash.hex()).decode(), ref.media_type)

    def _content(self, body: Body) -> object:
        return content_value(whole_text(body, self._blobs), body.media_type)
