"""Which blobs a record names: what must be there for it to be read in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tracklog.producers.fork_start import EXT_REPLY
from tracklog.schemas.codec import Event
from tracklog.schemas.events import DriftCrossed
from tracklog.schemas.values import BlobRef, Body, Value

__all__ = ["blobs_of_event", "blobs_of_value"]

JSON: Final = "application/json"


def blobs_of_event(event: Event) -> Iterator[tuple[str, str]]:
    """(hash, media type) of each blob that an event names itself; blobs that name others are not looked into."""
    if event.body is None:
        return
    yield from blobs_of_value(event.body)
    if isinstance(event.body, DriftCrossed):
        body = event.body
        hashes = (body.old_prompt, body.new_prompt, body.old_tools, body.new_tools)
        yield from ((digest.hex(), "") for digest in hashes if digest is not None)
    if EXT_REPLY in event.envelope.ext:
        yield event.envelope.ext[EXT_REPLY], JSON


def blobs_of_value(value: Any) -> Iterator[tuple[str, str]]:
    """The same of any value of a record."""
    if isinstance(value, BlobRef):
        yield value.hash.hex(), value.media_type
    elif isinstance(value, Body):
        if value.stored:
            yield value.hash.hex(), value.media_type
    elif isinstance(value, Value):
        for name in type(value).model_fields:
            yield from blobs_of_value(getattr(value, name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from blobs_of_value(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from blobs_of_value(item)
