"""Long texts of events: what is above the limit goes to the blob store before the event that names it.

The one place where a body is cut, and the one where it is made whole again (DESIGN §4).
"""

from __future__ import annotations

import hashlib

import orjson

from tracklog.infra.blobs import BlobStore
from tracklog.schemas.errors import BlobAltered, BlobTooLarge, InvalidEvent
from tracklog.schemas.values import Body

__all__ = ["body_of", "cut_text", "delivered_body", "json_of", "whole_text"]


def body_of(text: str, blobs: BlobStore, limit: int, media_type: str = "") -> Body:
    """The body for `text`: all of it up to `limit` bytes of UTF-8, else its beginning, the whole being stored.

    Returns after the blob is durable, so the event may be appended at once. Raises BlobTooLarge, BlobError, and
    UnicodeEncodeError for a text that is not Unicode (a lone surrogate).
    """
    data = text.encode()
    if len(data) <= limit:
        return Body.of(text, media_type)
    blobs.put(data, media_type=media_type)
    return Body(
        text=cut_text(data, limit),
        hash=hashlib.sha256(data).digest(),
        size_bytes=len(data),
        media_type=media_type,
        stored=True,
    )


def delivered_body(delivered: str, whole: str, blobs: BlobStore, media_type: str = "") -> Body:
    """The body for a text of which less was given on; `delivered` may say so in words of its own.

    Returns after the whole is durable. One that is too large for the blob store is kept as it was given on, no more.
    """
    data = whole.encode()
    try:
        blobs.put(data, media_type=media_type)
    except BlobTooLarge:
        return Body.of(delivered, media_type)
    digest = hashlib.sha256(data).digest()
    return Body(text=delivered, hash=digest, size_bytes=len(data), media_type=media_type, stored=True)


def cut_text(data: bytes, limit: int) -> str:
    """The first `limit` bytes of UTF-8 as text, without the character that the limit would split."""
    return data[:limit].decode("utf-8", "ignore")


def whole_text(body: Body, blobs: BlobStore) -> str:
    """All of the text, from the event when it holds it, else from the store.

    Raises BlobMissing, BlobAltered, BlobError.
    """
    if body.whole:
        return body.text
    data = blobs.get(body.hash.hex())
    if len(data) != body.size_bytes:
        raise BlobAltered(
            f"blob {body.hash.hex()} has {len(data)} bytes, its event says {body.size_bytes}",
            hint="restore the blob from a backup",
        )
    return data.decode()


def json_of(name: str, value: object) -> str:
    """The value as JSON. Raises InvalidEvent, naming it, for what JSON cannot say."""
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise InvalidEvent(
            f"{name} is not JSON: {error}", hint="return dicts, lists, strings, numbers and the like"
        ) from error
