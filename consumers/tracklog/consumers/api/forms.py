"""Forms behind links in messages: what was filled in, and pages that say that nothing was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from tracklog.consumers.api.pages import HEADERS, told
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX

__all__ = ["FORM", "LINKS", "LOOK", "described", "filled_in", "refused"]

FORM: Final = "application/x-www-form-urlencoded"
LINKS: Final = ("/answers/", "/escalations/")
"""Where links in messages lead: a browser opens them, also damaged ones, so that errors are pages there."""
LOOK: Final = "look"


def described(choices: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
    """The form for the description of the API: what is done, by whose token, with which texts."""
    said = {name: {"type": "string", "maxLength": TEXT_FIELD_CHARS_MAX} for name in texts}
    properties = {"token": {"type": "string"}, **said, "do": {"enum": [LOOK, *choices]}}
    schema = {"type": "object", "required": ["do"], "additionalProperties": False, "properties": properties}
    return {"requestBody": {"required": True, "content": {FORM: {"schema": schema}}}}


async def filled_in(request: Request, choices: Sequence[str], texts: Sequence[str]) -> dict[str, str]:
    """Raises HTTPException 415 and 422."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise HTTPException(415, f"send a form: {FORM}")
    try:
        pairs = parse_qsl((await request.body()).decode(), keep_blank_values=True, errors="strict", max_num_fields=10)
    except ValueError:
        raise HTTPException(422, "this is no form") from None
    said = dict(pairs)
    if set(said) - {"token", "do", *texts} or len(said) != len(pairs) or said.get("do") not in (LOOK, *choices):
        has = f"do ({', '.join((LOOK, *choices))}), token, {', '.join(texts)}"
        raise HTTPException(422, f"the form has {has}, each once")
    for name in texts:
        if len(said.get(name, "")) > TEXT_FIELD_CHARS_MAX:
            raise HTTPException(422, f"the {name} has at most {TEXT_FIELD_CHARS_MAX} characters")
    return said


def refused(path: str, status: int, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Response:
    """An error as an answer: a page for people where a link leads, which may be damaged; JSON elsewhere."""
    if path.startswith(LINKS):
        page = told("Nothing was decided", f"{body['error']}. {body['hint']}.")
        return HTMLResponse(page, status, {**HEADERS, **(headers or {})})
    return JSONResponse(dict(body), status, headers)
