"""Judgements of a trajectory, a turn or a call."""

from __future__ import annotations

from typing import Any

from tracklog.consumers.api import bodies
from tracklog.consumers.api.routes import TEXT, Has, Id, Viewer, done, resource
from tracklog.producers.noting import is_nobodys, note
from tracklog.schemas import inbox
from tracklog.schemas.errors import InputError
from tracklog.schemas.values import Body

__all__ = ["router"]

router = resource("annotations")


@router.post("/trajectories/{trajectory_id}/annotations", status_code=202)
async def annotate(has: Has, who: Viewer, trajectory_id: Id, body: bodies.Annotate) -> dict[str, Any]:
    """Judges a trajectory, a turn or a call; also after its end, and then at once when no worker would take it."""
    state = await has.state(who, trajectory_id)
    try:
        said = inbox.Annotation(
            target=body.target,
            turn=body.turn,
            call_id=body.call_id,
            name=body.name,
            value=Body.of(body.value, TEXT),
            source=who.name,
            client_id=body.client_id,
        )
    except ValueError as error:
        raise InputError(f"the annotation makes no sense: {error}") from None
    stood, at = await has.client_of(who, state.tenant).annotate(trajectory_id, said)
    if not is_nobodys(stood):
        return done(has, who, "annotate", trajectory_id, at=at)
    async with has.new_producer() as producer:
        await note(producer, has.log, has.topics, trajectory_id, owner=who.name, clock=has.clock)
    return {**done(has, who, "annotate", trajectory_id, at=at), "status": "taken"}
