"""What the routes of all resources share: who asks, for which trajectory, and how what was said is put into an inbox.

Each resource has a module with one `router`; `app.ROUTERS` lists them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Header, HTTPException, Path, Request
from pydantic import BeforeValidator

from tracklog.consumers.api.services import Services
from tracklog.consumers.api.tokens import Principal, Role
from tracklog.consumers.read_taken import INBOX
from tracklog.infra.log.port import Position
from tracklog.schemas import limits

__all__ = [
    "PAGE_MAX",
    "TEXT",
    "Approver",
    "CallId",
    "Has",
    "Id",
    "Operator",
    "Recorder",
    "Viewer",
    "done",
    "resource",
    "services_of",
    "tenant_of",
]

PAGE_MAX: Final = 500
TEXT: Final = "text/plain"

Id = Annotated[
    str,
    BeforeValidator(unquote),
    Path(min_length=1, max_length=limits.TRAJECTORY_ID_BYTES_MAX, description="The trajectory; a slash in it as %2F"),
]
"""See `segments.py`."""
CallId = Annotated[str, BeforeValidator(unquote), Path(min_length=1, max_length=200, description="The call")]


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def caller(request: Request, authorization: Annotated[str | None, Header()] = None) -> Principal:
    return await services_of(request).principal(authorization)


def with_role(role: Role) -> Any:
    def check(who: Annotated[Principal, Depends(caller)]) -> Principal:
        if not who.may(role):
            raise HTTPException(403, f"that needs the role {role.value}; this token has {', '.join(sorted(who.roles))}")
        return who

    return Depends(check)


Viewer = Annotated[Principal, with_role(Role.VIEWER)]
Approver = Annotated[Principal, with_role(Role.APPROVER)]
Operator = Annotated[Principal, with_role(Role.OPERATOR)]
Recorder = Annotated[Principal, with_role(Role.RECORDER)]
Has = Annotated[Services, Depends(services_of)]


def known_parameters(request: Request) -> None:
    """Raises HTTPException 422 for a query parameter that is not in the description: misspelt, it would not filter."""
    described = request.app.openapi()["paths"][request.scope["route"].path][request.method.lower()]
    known = [one["name"] for one in described.get("parameters", ()) if one["in"] == "query"]
    strange = sorted(set(request.query_params) - set(known))
    if strange:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise HTTPException(422, f"{request.url.path} has no query parameter {strange[0]!r}; {has}")


def resource(tag: str) -> APIRouter:
    """A router for one resource, listed under this name in the description."""
    return APIRouter(tags=[tag], dependencies=[Depends(known_parameters)])


def tenant_of(who: Principal, asked: str | None) -> str | None:
    """The tenant to look at; None for all. Raises HTTPException 403 for one that is not this caller's."""
    if asked is not None:
        if not who.sees(asked):
            raise HTTPException(403, f"this token is not for tenant {asked!r}")
        return asked
    if "*" in who.tenants:
        return None
    if len(who.tenants) == 1:
        return next(iter(who.tenants))
    raise HTTPException(422, f"say which tenant: {', '.join(sorted(who.tenants))}")


def done(
    has: Services, who: Principal, what: str, trajectory_id: str, detail: str = "", *, at: Position
) -> dict[str, Any]:
    """The answer to what is in an inbox now, and where there, after a line in the audit log."""
    has.note(who, what, trajectory_id, detail)
    place = {"topic": has.topics.inbox, "partition": at.partition, "offset": at.offset}
    seen = f"{INBOX}{at.partition}:{at.offset}"
    return {"trajectory_id": trajectory_id, "status": "in the inbox", "position": place, "seen": seen}
