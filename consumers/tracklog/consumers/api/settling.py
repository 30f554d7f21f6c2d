"""Links to escalations: a page for people about a call that may have happened (DESIGN §9).

As `answering`: GET shows a form, looks nothing up and decides nothing. POST says what became of the call, for whoever
shows a token of their own with the role operator.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from fastapi import Header, Path, Request
from fastapi.responses import HTMLResponse

from tracklog.consumers.api.escalations import say_what_became
from tracklog.consumers.api.forms import LOOK, described
from tracklog.consumers.api.links import spoken
from tracklog.consumers.api.pages import HEADERS, finding_out, told
from tracklog.consumers.api.routes import CallId, Has, Id, resource
from tracklog.consumers.api.services import Services
from tracklog.consumers.api.tokens import Role
from tracklog.consumers.doubted_call import doubted_call
from tracklog.schemas.errors import InvalidEvent

__all__ = ["router"]

CHOICES: Final = ("happened", "did_not_happen", "retry")
TEXTS: Final = ("reason", "output")

router = resource("settlements")
IntentHash = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="The intent that is in doubt")]


@router.get("/escalations/{trajectory_id}/{call_id}/{intent_hash}", response_class=HTMLResponse)
async def show_form(trajectory_id: Id, call_id: CallId, intent_hash: IntentHash) -> HTMLResponse:
    """A form to say what became of a call. It tells nothing that the link does not."""
    return HTMLResponse(finding_out(trajectory_id, call_id, intent_hash), headers=HEADERS)


@router.post(
    "/escalations/{trajectory_id}/{call_id}/{intent_hash}",
    status_code=202,
    response_class=HTMLResponse,
    openapi_extra=described(CHOICES, TEXTS),
)
async def say(
    has: Has,
    request: Request,
    trajectory_id: Id,
    call_id: CallId,
    intent_hash: IntentHash,
    authorization: Annotated[str | None, Header()] = None,
) -> HTMLResponse:
    """Shows the call, or says what became of it, for whoever the token is of. Errors are pages, too."""
    who, said = await spoken(has, request, authorization, Role.OPERATOR, CHOICES, TEXTS)
    await has.state(who, trajectory_id)
    if said["do"] == LOOK:
        return await _look(has, trajectory_id, call_id, intent_hash)
    found, reason, output = said["do"], said.get("reason", ""), said.get("output", "")
    about = trajectory_id, call_id
    await say_what_became(has, who, *about, found, reason=reason, output=output, intent_hash=intent_hash)
    has.note(who, found, *about)
    text = f"{found.replace('_', ' ')}, says {who.name}: it is in the inbox. The first word on a call counts."
    return HTMLResponse(told("Said", text), 202, HEADERS)


async def _look(has: Services, trajectory_id: str, call_id: str, intent_hash: str) -> HTMLResponse:
    found = await asyncio.to_thread(doubted_call, has.log, has.topics.events, has.blobs, trajectory_id, call_id)
    if found.intent_hash != intent_hash:
        raise InvalidEvent("this call was made again since, and is in doubt anew", hint="use the link of that")
    return HTMLResponse(finding_out(trajectory_id, call_id, intent_hash, found), headers=HEADERS)
