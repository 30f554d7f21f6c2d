"""From the events of an imported run back to its record: the proof that nothing was lost.

Reads only accepted events and the blob store. The result equals the JSON object that was imported, the
order of its keys aside.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tracklog.infra.blobs import BlobStore
from tracklog.producers.bodies import whole_text
from tracklog.producers.importers.plan import RECORDING
from tracklog.producers.importers.record import Record, record_of
from tracklog.producers.importers.shape import EXT_MESSAGE, NO_MESSAGE
from tracklog.producers.messages import Messages
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError


def rebuild_record(events: Iterable[Event], blobs: BlobStore) -> Record:
    """The record that was imported. Raises InputError for events of no import, and what reading a blob raises."""
    messages, found, recording = Messages(blobs), list[dict[str, Any]](), None
    for event in events:
        if isinstance(event.body, ev.Observed) and event.body.name == RECORDING:
            recording = whole_text(event.body.value, blobs)
        if event.body is None or event.envelope.ext.get(EXT_MESSAGE) == NO_MESSAGE:
            continue
        messages.take(event)
        message = messages.of(event)
        if message is not None:
            found.append(message)
    if recording is None:
        raise InputError("these events are of no import", hint="only an imported run has a recording")
    return record_of(recording, found)
