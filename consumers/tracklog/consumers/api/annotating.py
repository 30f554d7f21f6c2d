"""Judgements of a trajectory, a turn or a call."""

from __future__ import annotations

from tracklog.consumers.api import bodies
from tracklog.consumers.api.routes import TEXT, Has, Id, Viewer, done, resource
from tracklog.schemas import inbox
from tracklog.schemas.errors import InputError
from tracklog.schemas.values import Body

__all__ = ["router"]

router = resource("annotations")


@router.post("/trajectories/{trajectory_id}/annotations", status_code=202)
async def annotate(has: Has, who: Viewer, trajectory_id: Id, body: bodies.Annotate) -> dict[str, str]:
    """Judges a trajectory, a turn or a call; also after its end."""
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
    await has.client_of(who, state.tenant).annotate(trajectory_id, said)
    return done(has, who, "annotate", trajectory_id)
