"""The HTTP API: trajectories, decisions, messages, cancels, settlements, annotations, outcomes (DESIGN §9).

A GET never changes anything. What changes something goes into an inbox, and is answered 202 when it is durable there:
whoever runs the trajectory takes it or refuses it, in the record. Only what clients record of their own runs goes into
the log at once (`ingest`). Who says it comes from the token, never from a body.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException as StarletteError

from tracklog.consumers.api import (
    annotating,
    answering,
    approvals,
    escalations,
    health,
    ingest,
    settling,
    tasks,
    totals,
    trajectories,
    watching,
)
from tracklog.consumers.api.counting import Counted
from tracklog.consumers.api.errors import ANSWERS, answer_of, said, unfit
from tracklog.consumers.api.forms import refused
from tracklog.consumers.api.limits import BodyLimit
from tracklog.consumers.api.routes import services_of
from tracklog.consumers.api.segments import EncodedSegments
from tracklog.consumers.api.services import Services
from tracklog.schemas.errors import ClientFatal, TracklogError

__all__ = ["ROUTERS", "make_app"]

ROUTERS: Final[tuple[APIRouter, ...]] = (
    health.router,
    trajectories.router,
    watching.router,
    totals.router,
    tasks.router,
    approvals.router,
    answering.router,
    escalations.router,
    settling.router,
    annotating.router,
    ingest.router,
)
"""One a resource. Made by `routes.resource`."""


def make_app(services: Services, *, body_bytes_max: int) -> FastAPI:
    """The application over these services, which the caller closes."""
    app = FastAPI(title="Tracklog", version="1", description=__doc__ or "", redoc_url=None, responses=ANSWERS)
    app.state.services = services
    app.add_middleware(BodyLimit, bytes_max=body_bytes_max)
    app.add_middleware(EncodedSegments)
    if services.counting is not None:
        app.add_middleware(Counted, counting=services.counting, clock=services.clock)
    app.add_exception_handler(TracklogError, _told)
    app.add_exception_handler(StarletteError, _refused)
    app.add_exception_handler(RequestValidationError, _unfit)
    for router in ROUTERS:
        app.include_router(router)
    return app


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, TracklogError)
    if isinstance(error, ClientFatal):
        services_of(request).fatal = error
    return refused(request.url.path, *answer_of(error))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteError)
    return refused(request.url.path, error.status_code, said(error.status_code, str(error.detail)), error.headers)


async def _unfit(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    details: dict[str, object] = {}
    if first["loc"][:2] == ("body", "events") and len(first["loc"]) > 2:
        _, _, index, *rest = first["loc"]
        details = {"index": index, "field": ".".join(map(str, rest[1:])), "reason": first["msg"]}
    return refused(request.url.path, 422, said(422, *unfit(first), details=details))
