"""Answer links: a page for people, at an address that names a request and nobody (DESIGN §9).

GET shows a form, whoever asks and whatever the request is: it looks nothing up and decides nothing, so a scanner of
links may follow it. POST decides, for whoever shows a token of their own, in the form or as a bearer token.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

from fastapi import Header, HTTPException, Path, Request
from fastapi.responses import HTMLResponse

from tracklog.consumers.api.answer_page import HEADERS, asking, told
from tracklog.consumers.api.errors import answer_of
from tracklog.consumers.api.routes import CallId, Has, Id, resource
from tracklog.consumers.api.services import Services
from tracklog.consumers.api.tokens import Principal, Role
from tracklog.consumers.held_call import held_call
from tracklog.schemas.errors import InvalidEvent, TracklogError
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.values import Choice

__all__ = ["router"]

FORM: Final = "application/x-www-form-urlencoded"
FIELDS: Final = frozenset(("token", "reason", "do"))
LOOK: Final = "look"
CHOICES: Final = {"approve": Choice.APPROVE, "deny": Choice.DENY}

router = resource("answers")
RequestHash = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="The request that is answered")]
_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            FORM: {
                "schema": {
                    "type": "object",
                    "required": ["do"],
                    "additionalProperties": False,
                    "properties": {
                        "token": {"type": "string"},
                        "reason": {"type": "string", "maxLength": TEXT_FIELD_CHARS_MAX},
                        "do": {"enum": [LOOK, *CHOICES]},
                    },
                }
            }
        },
    }
}


@router.get("/answers/{trajectory_id}/{call_id}/{request_hash}", response_class=HTMLResponse)
async def show_form(trajectory_id: Id, call_id: CallId, request_hash: RequestHash) -> HTMLResponse:
    """A form to answer with. It tells nothing that the link does not."""
    return HTMLResponse(asking(trajectory_id, call_id, request_hash), headers=HEADERS)


@router.post(
    "/answers/{trajectory_id}/{call_id}/{request_hash}",
    status_code=202,
    response_class=HTMLResponse,
    openapi_extra=_BODY,
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
    try:
        said = await _form(request)
        token = said.get("token", "")
        who = await has.principal(f"Bearer {token}" if token else authorization)
        if not who.may(Role.APPROVER):
            raise HTTPException(403, "that needs the role approver")
        await has.state(who, trajectory_id)
        if said["do"] == LOOK:
            return await _look(has, trajectory_id, call_id, request_hash)
        return await _decide(has, who, trajectory_id, call_id, request_hash, said)
    except HTTPException as error:
        return _refused(error.status_code, str(error.detail), error.headers)
    except TracklogError as error:
        status, body = answer_of(error)
        return _refused(status, f"{body['error']}. {body['hint']}", None)


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


async def _form(request: Request) -> dict[str, str]:
    """Raises HTTPException 415 and 422."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise HTTPException(415, f"send a form: {FORM}")
    try:
        pairs = parse_qsl((await request.body()).decode(), keep_blank_values=True, errors="strict", max_num_fields=10)
    except ValueError:
        raise HTTPException(422, "this is no form") from None
    said = dict(pairs)
    if set(said) - FIELDS or len(said) != len(pairs) or said.get("do") not in (LOOK, *CHOICES):
        raise HTTPException(422, f"the form has do ({LOOK}, {', '.join(CHOICES)}), token and reason, each once")
    if len(said.get("reason", "")) > TEXT_FIELD_CHARS_MAX:
        raise HTTPException(422, f"a reason has at most {TEXT_FIELD_CHARS_MAX} characters")
    return said


def _refused(status: int, text: str, headers: Any) -> HTMLResponse:
    return HTMLResponse(told("Nothing was decided", text), status, {**HEADERS, **(headers or {})})
