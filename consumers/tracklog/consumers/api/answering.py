"""Answer links: a page for people, at an address that names a request and nobody (DESIGN §9).

GET shows a form, whoever asks and whatever the request is: it looks nothing up and decides nothing, so a scanner of
links may follow it. POST decides, for whoever shows a token of their own, in the form or as a bearer token.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from fastapi import Header, Path, Request
from fastapi.responses import HTMLResponse

from tracklog.consumers.api.forms import LOOK, described
from tracklog.consumers.api.links import spoken
from tracklog.consumers.api.pages import HEADERS, asking, told
from tracklog.consumers.api.routes import CallId, Has, Id, resource
from tracklog.consumers.api.services import Services
from tracklog.consumers.api.tokens import Principal, Role
from tracklog.consumers.held_call import held_call
from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.values import Choice

__all__ = ["router"]

CHOICES: Final = {"approve": Choice.APPROVE, "deny": Choice.DENY}
TEXTS: Final = ("reason",)

router = resource("answers")
RequestHash = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="The request that is answered")]


@router.get("/answers/{trajectory_id}/{call_id}/{request_hash}", response_class=HTMLResponse)
async def show_form(trajectory_id: Id, call_id: CallId, request_hash: RequestHash) -> HTMLResponse:
    """A form to answer with. It tells nothing that the link does not."""
    return HTMLResponse(asking(trajectory_id, call_id, request_hash), headers=HEADERS)


@router.post(
    "/answers/{trajectory_id}/{call_id}/{request_hash}",
    status_code=202,
    response_class=HTMLResponse,
    openapi_extra=described(list(CHOICES), TEXTS),
)
async def answer(
    has: Has,
    request: Request,
    trajectory_id: Id,
    call_id: CallId,
    request_hash: RequestHash,
    authorization: Annotated[str | None, Header()] = None,
) -> HTMLResponse:
    """Shows the call, or decides about it, for whoever the token is of. Errors are pages, too."""
    who, said = await spoken(has, request, authorization, Role.APPROVER, list(CHOICES), TEXTS)
    await has.state(who, trajectory_id)
    if said["do"] == LOOK:
        return await _look(has, trajectory_id, call_id, request_hash)
    return await _decide(has, who, trajectory_id, call_id, request_hash, said)


async def _look(has: Services, trajectory_id: str, call_id: str, request_hash: str) -> HTMLResponse:
    found = await asyncio.to_thread(held_call, has.log, has.topics.events, has.blobs, trajectory_id, call_id)
    if found.request.hash.hex() != request_hash:
        raise InvalidEvent("another request about this call is open now", hint="use its own link")
    return HTMLResponse(asking(trajectory_id, call_id, request_hash, found), headers=HEADERS)


async def _decide(
    has: Services, who: Principal, trajectory_id: str, call_id: str, request_hash: str, said: dict[str, str]
) -> HTMLResponse:
    choice = CHOICES[said["do"]]
    await has.answers.answer(
        trajectory_id,
        call_id,
        who=who.approver,
        choice=choice,
        reason=said.get("reason", ""),
        request_hash=bytes.fromhex(request_hash),
    )
    has.note(who, choice.value, trajectory_id, call_id)
    text = f"{choice.value}, by {who.name}, is in the inbox. The first decision on a call counts."
    return HTMLResponse(told("Answered", text), 202, HEADERS)
