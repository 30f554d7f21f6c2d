"""Errors of the library as answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tracklog.schemas.errors import (
    AppendUnknown,
    InputError,
    InvalidEvent,
    NotApprover,
    RecordTooLarge,
    TaskError,
    TracklogError,
    Undecided,
    WriterError,
)

__all__ = ["ANSWERS", "answer_of", "said", "unfit"]

_NONE: Final[Mapping[str, object]] = {}

_STATUS: Final[tuple[tuple[type[TracklogError], int], ...]] = (
    (NotApprover, 403),
    (InvalidEvent, 409),
    (Undecided, 504),
    (WriterError, 409),
    (TaskError, 409),
    (RecordTooLarge, 413),
    (InputError, 422),
    (AppendUnknown, 504),
)
"""The first that fits; everything else is 503: the log or Redis is away."""

ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    401: {"description": "No token that is known"},
    403: {"description": "Not with this role"},
    404: {"description": "There is none, or it is another tenant's"},
    409: {"description": "It does not stand so (any more)"},
    413: {"description": "More bytes than may be"},
    422: {"description": "What was sent makes no sense; it says why"},
    429: {"description": "Too many requests; Retry-After says how long to wait"},
    503: {"description": "The log or Redis is away"},
    504: {"description": "Nobody knows whether the log has it: send it again, it is taken once"},
}


HINTS: Final[Mapping[int, str]] = {
    401: "send `Authorization: Bearer TOKEN`; `tracklog tokens` makes one",
    403: "ask whoever gives out the tokens for another role or tenant",
    404: "GET /trajectories lists those there are; /docs has all paths",
    405: "/docs has all paths, and what each of them takes",
    409: "look at it again: GET /trajectories/ID",
    413: "send less at once; the bound is api.body_bytes_max",
    415: "/docs says in which form it is taken",
    422: "/docs says what is taken here",
    429: "wait as long as Retry-After says",
    503: "send it again in a while; GET /readyz says what is away",
    504: "send the same again: it is taken once",
}
"""The way out where nothing better is known."""
OTHERWISE: Final = "see /docs"


def answer_of(error: TracklogError) -> tuple[int, Mapping[str, object]]:
    """(status, body) of an error."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 503)
    return status, said(status, error.message, error.hint, error.details)


def said(status: int, message: str, hint: str = "", details: Mapping[str, object] = _NONE) -> dict[str, object]:
    """The body of an answer that is an error: it always has a way out."""
    return {"error": message, "hint": hint or HINTS.get(status, OTHERWISE), **details}


_PLACES: Final[Mapping[object, str]] = {
    "query": "in the query, ",
    "path": "in the path, ",
    "header": "in the headers, ",
    "body": "in the body, ",
}
_WAYS: Final[Mapping[str, str]] = {
    "missing": "send {name}",
    "extra_forbidden": "leave {name} out; /docs has those that are taken here",
    "json_invalid": "send one JSON value as the body, and application/json as its Content-Type",
    "string_pattern_mismatch": "{name} is to match {pattern}",
    "literal_error": "{name} is one of {expected}",
    "enum": "{name} is one of {expected}",
    "less_than_equal": "{name} is {le} at most",
    "less_than": "{name} is below {lt}",
    "greater_than_equal": "{name} is {ge} at least",
    "string_too_long": "{name} has {max_length} characters at most",
    "string_too_short": "{name} has {min_length} characters at least",
    "too_long": "{name} has {max_length} at most",
}
"""By what pydantic calls an error."""


def unfit(error: Mapping[str, Any]) -> tuple[str, str]:
    """(message, way out) of what a request's own form says no to, as pydantic tells of it: the field is named."""
    place, *rest = error["loc"]
    name = ".".join(map(str, rest)) or str(place)
    way = _WAYS.get(error["type"], "/docs says what {name} takes")
    message = f"{_PLACES.get(place, '')}{name}: {error['msg']}"
    return message, way.format_map({"name": name, **{n: str(v) for n, v in error.get("ctx", {}).items()}})
