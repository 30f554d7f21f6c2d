"""What somebody gave and a record cannot hold, told in words of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from tracklog.schemas.errors import InvalidEvent

__all__ = ["checked"]


@contextmanager
def checked(what: str) -> Iterator[None]:
    """Around the making of a record from what was given. Raises InvalidEvent that names the field and what is wrong."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidEvent(f"{what} cannot be recorded: {where or 'it'}: {first['msg']}") from None
