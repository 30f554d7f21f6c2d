"""Which blobs a record names, and which of these name others: what must be there for it to be read in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tracklog.producers.asked import EXT_TOOLS
from tracklog.producers.fork_start import EXT_REPLY
from tracklog.producers.snapshot import MEDIA_TYPE as CHECKPOINT
from tracklog.producers.snapshot import blobs_of_snapshot
from tracklog.producers.workspace import MEDIA_TYPE as WORKSPACE
from tracklog.producers.workspace_tree import load_manifest
from tracklog.schemas.codec import Event
from tracklog.schemas.events import DriftCrossed
from tracklog.schemas.values import BlobRef, Body, Value

__all__ = ["NAMES_OTHERS", "blobs_of_blob", "blobs_of_event", "blobs_of_value"]

JSON: Final = "application/json"
NAMES_OTHERS: Final = frozenset({CHECKPOINT, WORKSPACE})
"""The media types of blobs that name other blobs."""


def blobs_of_event(event: Event) -> Iterator[tuple[str, str]]:
    """(hash, media type) of each blob that an event names itself."""
    if event.body is None:
        return
    yield from blobs_of_value(event.body)
    if isinstance(event.body, DriftCrossed):
        body = event.body
        hashes = (body.old_prompt, body.new_prompt, body.old_tools, body.new_tools)
        yield from ((digest.hex(), "") for digest in hashes if digest is not None)
    for name in (EXT_REPLY, EXT_TOOLS):
        if event.envelope.ext.get(name):
            yield event.envelope.ext[name], JSON


def blobs_of_blob(media_type: str, data: bytes) -> Iterator[tuple[str, str]]:
    """The same of a blob. Raises BlobAltered for one that is not what its media type says."""
    if media_type == CHECKPOINT:
        yield from ((digest, "") for digest in blobs_of_snapshot(data))
    elif media_type == WORKSPACE:
        manifest = load_manifest(data)
        yield from ((digest, "") for digest in manifest.blobs)
        if manifest.base is not None:
            yield manifest.base, WORKSPACE


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
