"""Recording from other languages: a client starts a trajectory and sends its events in batches (docs/ingest.md)."""

from __future__ import annotations

from typing import Any, Final

from fastapi import HTTPException
from pydantic import BaseModel

from tracklog.consumers.api.routes import Has, Id, Recorder, resource
from tracklog.consumers.api.tokens import Principal
from tracklog.consumers.ingest.admission import Author
from tracklog.consumers.ingest.given import Batch, Release, Start

__all__ = ["router"]

PERSON_CHARS_MAX: Final = 500
"""With the name of the client it is the source of events, and the owner of a trajectory."""

router = resource("ingest")


class Recorded(BaseModel):
    """The events are durable and accepted. The same request again has the same answer."""

    trajectory_id: str
    first: int
    """The number of the first of them."""
    next: int
    """The number of the client's next event."""
    epoch: int
    """The epoch in which the last of them was accepted."""
    seqs: list[int]
    """Where they are in the trajectory."""
    seen: str
    """PARTITION:OFFSET of the last of them: whoever reads with `?seen=` of it finds them."""
    hash: str
    """That of the last event, in hexadecimal: the next event hangs on it."""


@router.post("/trajectories", status_code=201)
async def start(has: Has, who: Recorder, body: Start) -> Recorded:
    """Starts a trajectory that its client records: event number 0. Answered when it is durable and accepted."""
    if not who.sees(body.tenant):
        raise HTTPException(403, f"this token is not for tenant {body.tenant!r}")
    found = await has.ingest.start(_author(who, body.client), body)
    has.note(who, "record", body.id, "0")
    return _shown(found)


@router.post("/trajectories/{trajectory_id}/events")
async def record(has: Has, who: Recorder, trajectory_id: Id, body: Batch) -> Recorded:
    """Records events in order, each once. Answered when all of them are durable and accepted; refused as a whole, with
    nothing recorded, when one of them makes no sense or cannot follow."""
    found = await has.ingest.append(_author(who, body.client), trajectory_id, body)
    if found is None:
        raise _none(trajectory_id)
    has.note(who, "record", trajectory_id, f"{found.first}-{found.next - 1}")
    return _shown(found)


@router.post("/trajectories/{trajectory_id}/release")
async def release(has: Has, who: Recorder, trajectory_id: Id, body: Release) -> dict[str, str]:
    """Ends the lease: another client may go on at once."""
    if not await has.ingest.release(_author(who, body.client), trajectory_id, body):
        raise _none(trajectory_id)
    has.note(who, "release", trajectory_id)
    return {"trajectory_id": trajectory_id, "status": "released"}


def _author(who: Principal, client: str) -> Author:
    """Two persons with clients of one name are two clients. Raises HTTPException 422 for a name too long to be kept."""
    if len(who.name) > PERSON_CHARS_MAX:
        raise HTTPException(422, f"the name of this token's person has more than {PERSON_CHARS_MAX} characters")
    return Author(f"{who.name}/{client}", who.sees)


def _none(trajectory_id: str) -> HTTPException:
    return HTTPException(404, f"there is no trajectory {trajectory_id!r}")


def _shown(found: Any) -> Recorded:
    return Recorded(**found._asdict())
