"""Read your own writes over HTTP: `?seen=PARTITION:OFFSET`, or the header, and how far an answer is folded.

An answer that recorded events says where the last of them is (`seen`), one that put something into an inbox where that
is; a request that gives this back is answered when it is folded (and before that taken), or with 503 after the bound.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Header, Query, Response

from tracklog.consumers.api.routes import Has
from tracklog.consumers.read import Reader
from tracklog.consumers.read_live import AsOf
from tracklog.consumers.read_taken import places_of, taken

__all__ = ["AS_OF", "SEEN_CHARS_MAX", "Seeing", "as_of_headers", "say_as_of"]

AS_OF: Final = "Tracklog-As-Of"
SEEN_CHARS_MAX: Final = 2000
WAIT_S: Final = 5.0
"""How long a position is waited for before the answer is 503."""
_SAID: Final = (
    "PARTITION:OFFSET[,...]: answer when these records of the events topic are folded; inbox:PARTITION:OFFSET: when"
    " this record of an inbox was taken, and that is folded"
)


async def reader_of(
    has: Has,
    seen: Annotated[str | None, Query(max_length=SEEN_CHARS_MAX, description=_SAID)] = None,
    tracklog_seen: Annotated[str | None, Header(max_length=SEEN_CHARS_MAX, description=f"As `seen`: {_SAID}")] = None,
) -> Reader:
    """Raises RangeError for what names no positions, ReadBehind."""
    said = seen if seen is not None else tracklog_seen
    if said is None:
        return has.reader
    places = places_of(said)
    wanted = dict(places.events)
    for partition, offset in (await taken(has.reader, has.log, has.topics, places.inbox, wait_s=WAIT_S)).items():
        wanted[partition] = max(offset, wanted.get(partition, 0))
    return has.reader.seeing(wanted, wait_s=WAIT_S)


Seeing = Annotated[Reader, Depends(reader_of)]


def as_of_headers(as_of: AsOf) -> dict[str, str]:
    """How far an answer is folded: `PARTITION:NEXT OFFSET[,...]`."""
    return {AS_OF: str(as_of)}


def say_as_of(response: Response, as_of: AsOf) -> dict[str, int]:
    """The same in a header, and as the body has it."""
    response.headers.update(as_of_headers(as_of))
    return as_of.as_map()
