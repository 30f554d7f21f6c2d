"""How a recorded message looks beyond what its event says of it.

An event gives a plain message: role and content, for a result the call it answers. Recordings keep more
beside that (the agent's name, a mark on demonstrations), or less. The difference travels in the event's
envelope under EXT_MESSAGE, as JSON: `{"set": {...}, "drop": [...]}`, nothing when there is none, and
NO_MESSAGE for a result that no message carries. So the exact messages can be rebuilt from the events alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from tracklog.producers.importers.run import JSON, TEXT, Content

EXT_MESSAGE: Final = "message"
NO_MESSAGE: Final = "none"

Message = Mapping[str, Any]


def content_of(value: object) -> Content:
    """A text as it is; anything else (parts, null) as JSON."""
    if isinstance(value, str):
        return Content(text=value)
    return Content(text=orjson.dumps(value).decode(), media_type=JSON)


def content_value(text: str, media_type: str) -> object:
    """The inverse of `content_of`."""
    return orjson.loads(text) if media_type == JSON else text


def shape_of(plain: Message, recorded: Message) -> str:
    """What turns the plain message into the recorded one; "" when they are the same."""
    added = {key: value for key, value in recorded.items() if key not in plain or plain[key] != value}
    dropped = [key for key in plain if key not in recorded]
    if not added and not dropped:
        return ""
    return orjson.dumps({"set": added, "drop": dropped}).decode()


def reshaped(plain: Message, shape: str) -> dict[str, Any]:
    """The recorded message, from the plain one and its shape."""
    if not shape:
        return dict(plain)
    change = orjson.loads(shape)
    kept = {key: value for key, value in plain.items() if key not in change["drop"]}
    return {**kept, **change["set"]}


__all__ = ["EXT_MESSAGE", "NO_MESSAGE", "TEXT", "Message", "content_of", "content_value", "reshaped", "shape_of"]
