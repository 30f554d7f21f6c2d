"""What the pages behind links in messages share: who speaks, and what the form says."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import HTTPException, Request

from tracklog.consumers.api.forms import filled_in
from tracklog.consumers.api.services import Services
from tracklog.consumers.api.tokens import Principal, Role

__all__ = ["spoken"]


async def spoken(
    has: Services, request: Request, authorization: str | None, role: Role, choices: Sequence[str], texts: Sequence[str]
) -> tuple[Principal, dict[str, str]]:
    """Who sends a form, by the token in it or a bearer token, and what it says. Raises HTTPException 401 and 403, and
    as `filled_in`."""
    said = await filled_in(request, choices, texts)
    who = await has.principal(f"Bearer {said['token']}" if said.get("token") else authorization)
    if not who.may(role):
        raise HTTPException(403, f"that needs the role {role.value}")
    return who, said
