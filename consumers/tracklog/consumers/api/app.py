"""The HTTP API: trajectories, decisions, messages, cancels, settlements, annotations, outcomes (DESIGN §9).

A GET never changes anything. What changes something goes into an inbox, and is answered 202 when it is durable there:
whoever runs the trajectory takes it or refuses it, in the record. Who says it comes from the token, never from a body.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final

import orjson
from fastapi import Depends, FastAPI, Header, HTTPException, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException as StarletteError

from tracklog.consumers.api import bodies
from tracklog.consumers.api.errors import ANSWERS, answer_of
from tracklog.consumers.api.events import EventStream, events_of
from tracklog.consumers.api.limits import BodyLimit
from tracklog.consumers.api.services import Services
from tracklog.consumers.api.tokens import Principal, Role
from tracklog.consumers.listing import listed
from tracklog.consumers.read_filter import Filter
from tracklog.infra.redis_script import ask
from tracklog.processors.agenda import ASKED, NAME, VERSION, Entry, entry_of
from tracklog.processors.store_keys import StoreKeys
from tracklog.schemas import inbox
from tracklog.schemas.errors import InputError, InvalidEvent, TracklogError
from tracklog.schemas.lifecycle import OPEN_INTENT
from tracklog.schemas.state import State, dump_state
from tracklog.schemas.values import Body, Choice, InboxId, Place, ResultStatus, Settled

__all__ = ["make_app"]

PAGE_MAX: Final = 500
TEXT: Final = "text/plain"
Id = Annotated[str, Path(min_length=1, max_length=200, description="The trajectory")]
CallId = Annotated[str, Path(min_length=1, max_length=200, description="The call")]
Accepted = Annotated[dict[str, str], "what was put into the inbox"]


def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


def caller(request: Request, authorization: Annotated[str | None, Header()] = None) -> Principal:
    return services_of(request).principal(authorization)


def with_role(role: Role) -> Any:
    def check(who: Annotated[Principal, Depends(caller)]) -> Principal:
        if not who.may(role):
            raise HTTPException(403, f"that needs the role {role.value}; this token has {', '.join(sorted(who.roles))}")
        return who

    return Depends(check)


Viewer = Annotated[Principal, with_role(Role.VIEWER)]
Approver = Annotated[Principal, with_role(Role.APPROVER)]
Operator = Annotated[Principal, with_role(Role.OPERATOR)]
Has = Annotated[Services, Depends(services_of)]


def make_app(services: Services, *, body_bytes_max: int) -> FastAPI:
    """The application over these services, which the caller closes."""
    app = FastAPI(title="Tracklog", version="1", description=__doc__ or "", redoc_url=None, responses=ANSWERS)
    app.state.services = services
    app.add_middleware(BodyLimit, bytes_max=body_bytes_max)
    app.add_exception_handler(TracklogError, _told)
    app.add_exception_handler(StarletteError, _refused)
    app.add_exception_handler(RequestValidationError, _unfit)
    for add in (_add_health, _add_looking, _add_waiting, _add_tasks, _add_people):
        add(app)
    return app


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, TracklogError)
    status, body = answer_of(error)
    return JSONResponse(dict(body), status)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteError)
    return JSONResponse({"error": str(error.detail), "hint": ""}, error.status_code, error.headers)


async def _unfit(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"error": f"{where}: {first['msg']}", "hint": "see /docs"}, 422)


def _add_health(app: FastAPI) -> None:
    @app.get("/healthz", tags=["health"])
    def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["health"])
    def readyz(has: Has) -> dict[str, str]:
        """Log and Redis answer, and the tokens file can be read. 503 when one does not."""
        if has.tokens is not None and has.tokens.problem:
            raise HTTPException(503, f"tokens are as they were before: {has.tokens.problem}")
        has.log.ping(2.0)
        has.reader.live()
        return {"status": "ready"}


def _add_looking(app: FastAPI) -> None:
    @app.get("/trajectories", tags=["trajectories"])
    def list_trajectories(
        has: Has,
        who: Viewer,
        tenant: Annotated[str | None, Query(max_length=200)] = None,
        status: Annotated[str | None, Query(max_length=50)] = None,
        cursor: Annotated[str | None, Query(max_length=300)] = None,
        limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
    ) -> dict[str, Any]:
        """Newest first. `next` is the cursor of the page behind this one."""
        wanted = Filter(tenant=_tenant(who, tenant), status=status)
        page = listed(has.reader, wanted, None, cursor=cursor, limit=limit)
        as_of = {str(partition): offset for partition, offset in has.reader.as_of().items()}
        return {"trajectories": page.rows, "next": page.next, "as_of": as_of}

    @app.get("/trajectories/{trajectory_id}", tags=["trajectories"])
    async def show_trajectory(has: Has, who: Viewer, trajectory_id: Id) -> Response:
        """Its state."""
        return Response(dump_state(await has.state(who, trajectory_id)), media_type="application/json")

    @app.get("/trajectories/{trajectory_id}/events", tags=["trajectories"])
    async def list_events(
        has: Has,
        who: Viewer,
        trajectory_id: Id,
        after: Annotated[int, Query(ge=-1, lt=2**53)] = -1,
        limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
    ) -> Response:
        """Its accepted events behind a seq."""
        await has.state(who, trajectory_id)
        found = await run_in_threadpool(events_of, has.log, has.topics.events, trajectory_id, after, limit)
        return Response(orjson.dumps({"events": found}), media_type="application/json")

    @app.get(
        "/trajectories/{trajectory_id}/stream",
        tags=["trajectories"],
        response_class=Response,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def stream_events(
        has: Has, who: Viewer, trajectory_id: Id, last_event_id: Annotated[str | None, Header()] = None
    ) -> Response:
        """Server-sent events up to its end; `Last-Event-ID` goes on behind one."""
        await has.state(who, trajectory_id)
        after = int(last_event_id) if last_event_id is not None and last_event_id.isdecimal() else -1
        if has.streams >= has.streams_max:
            raise HTTPException(503, f"{has.streams_max} streams are open", {"Retry-After": "5"})
        return _Counted(has, has.log, has.topics.events, trajectory_id, min(after, 2**53), lambda: has.stopping)


def _add_waiting(app: FastAPI) -> None:
    @app.get("/approvals", tags=["approvals"])
    def list_approvals(
        has: Has, who: Viewer, tenant: Annotated[str | None, Query(max_length=200)] = None
    ) -> dict[str, Any]:
        """Held calls that wait for somebody, the one that waits longest first."""
        only = _tenant(who, tenant)
        found = [one for one in _asked(has) if only in (None, one.tenant)]
        return {"approvals": [_shown(one) for one in sorted(found, key=lambda one: one.asked_ms)]}

    @app.get("/escalations", tags=["approvals"])
    def list_escalations(
        has: Has, who: Viewer, tenant: Annotated[str | None, Query(max_length=200)] = None
    ) -> dict[str, Any]:
        """Trajectories with a call that may have happened, newest first."""
        wanted = Filter(tenant=_tenant(who, tenant), status="in doubt")
        page = listed(has.reader, wanted, None, cursor=None, limit=PAGE_MAX)
        return {"trajectories": page.rows, "next": page.next}


class _Counted(EventStream):
    """A stream that is counted while it is open."""

    def __init__(self, has: Services, *given: Any) -> None:
        super().__init__(*given)
        self._has = has

    async def __call__(self, *given: Any) -> None:
        self._has.streams += 1
        try:
            await super().__call__(*given)
        finally:
            self._has.streams -= 1


def _add_tasks(app: FastAPI) -> None:
    @app.put("/trajectories/{trajectory_id}/task", tags=["tasks"], status_code=202)
    async def submit(has: Has, who: Operator, trajectory_id: Id, body: bodies.Submit) -> dict[str, str]:
        """Gives a task to the workers. The same task again is the same; another one under this id is refused."""
        if not who.sees(body.tenant):
            raise HTTPException(403, f"this token is not for tenant {body.tenant!r}")
        client = has.client_of(who, body.tenant)
        await client.submit(
            body.agent,
            body.task,
            id=trajectory_id,
            labels=body.labels,
            tenant=body.tenant,
            on_behalf_of=None if has.tokens is None else who.name,
        )
        return _done(has, who, "submit", trajectory_id)

    @app.post("/trajectories/{trajectory_id}/messages", tags=["tasks"], status_code=202)
    async def send(has: Has, who: Operator, trajectory_id: Id, body: bodies.Said) -> dict[str, str]:
        """Says something to the agent."""
        state = await has.state(who, trajectory_id)
        await has.client_of(who, state.tenant).send(trajectory_id, body.text)
        return _done(has, who, "send", trajectory_id)

    @app.post("/trajectories/{trajectory_id}/cancel", tags=["tasks"], status_code=202)
    async def cancel(has: Has, who: Operator, trajectory_id: Id, body: bodies.Cancel) -> dict[str, str]:
        """Asks it to end at its next step."""
        state = await has.state(who, trajectory_id)
        await has.client_of(who, state.tenant).cancel(trajectory_id, body.reason)
        return _done(has, who, "cancel", trajectory_id)

    @app.post("/trajectories/{trajectory_id}/retry", tags=["tasks"], status_code=202)
    async def retry(has: Has, who: Operator, trajectory_id: Id, body: bodies.Cancel) -> dict[str, str]:
        """Lets one that was stopped go on."""
        state = await has.state(who, trajectory_id)
        await has.client_of(who, state.tenant).retry(trajectory_id, body.reason)
        return _done(has, who, "retry", trajectory_id)

    @app.post("/trajectories/{trajectory_id}/outcomes", tags=["tasks"], status_code=202)
    async def put_outcome(has: Has, who: Operator, trajectory_id: Id, body: bodies.Outcome) -> dict[str, str]:
        """What became of a dispatched call whose tool said that it answers later."""
        state = await has.state(who, trajectory_id)
        call = state.calls.get(body.call_id)
        if call is None or call.status not in OPEN_INTENT or call.place is not Place.DISPATCH:
            raise InvalidEvent(f"call {body.call_id!r} of {trajectory_id!r} is not open where calls are dispatched")
        outcome = inbox.Outcome(
            call_id=body.call_id,
            intent_hash=call.hash,
            slot=1,
            status=ResultStatus(body.status),
            output=Body.of(body.output, TEXT),
            settled=Settled.DIRECT,
        )
        await _post(has, who, state, outcome, f"outcome/{body.client_id}")
        return _done(has, who, "outcome", trajectory_id, body.call_id)


def _add_people(app: FastAPI) -> None:
    @app.post("/trajectories/{trajectory_id}/calls/{call_id}/decision", tags=["approvals"], status_code=202)
    async def decide(
        has: Has, who: Approver, trajectory_id: Id, call_id: CallId, body: bodies.Decide
    ) -> dict[str, str]:
        """Decides about a held call: the first decision in the inbox counts."""
        await has.state(who, trajectory_id)
        await has.answers.answer(
            trajectory_id,
            call_id,
            who=who.approver,
            choice=Choice(body.choice),
            reason=body.reason,
            answer=body.answer,
            arguments=None if body.arguments is None else orjson.dumps(body.arguments).decode(),
            request_hash=None if body.request_hash is None else bytes.fromhex(body.request_hash),
        )
        return _done(has, who, body.choice.value, trajectory_id, call_id)

    @app.post("/trajectories/{trajectory_id}/calls/{call_id}/settlement", tags=["approvals"], status_code=202)
    async def settle(
        has: Has, who: Operator, trajectory_id: Id, call_id: CallId, body: bodies.Settle
    ) -> dict[str, str]:
        """Whether a call happened that only a person can find out about."""
        await has.state(who, trajectory_id)
        await has.answers.settle(
            trajectory_id, call_id, person=who.name, happened=body.happened, output=body.output, reason=body.reason
        )
        return _done(has, who, "settle", trajectory_id, call_id)

    @app.post("/trajectories/{trajectory_id}/annotations", tags=["annotations"], status_code=202)
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
        await _post(has, who, state, said, f"annotation/{body.client_id}")
        return _done(has, who, "annotate", trajectory_id)


async def _post(has: Services, who: Principal, state: State, body: inbox.InboxBody, client_id: str) -> None:
    """Under an identity from the client's own: said twice, it is taken once."""
    said = hashlib.sha256(client_id.encode()).hexdigest()[:16]
    inbox_id = InboxId(source=f"{who.name}/{said}", seq=0)
    await has.poster.post(state.trajectory_id, body, inbox_id=inbox_id, tenant=state.tenant)


def _done(has: Services, who: Principal, what: str, trajectory_id: str, detail: str = "") -> dict[str, str]:
    has.note(who, what, trajectory_id, detail)
    return {"trajectory_id": trajectory_id, "status": "in the inbox"}


def _tenant(who: Principal, asked: str | None) -> str | None:
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


def _asked(has: Services) -> list[Entry]:
    keys = StoreKeys(has.topics.prefix, NAME, VERSION)
    partitions = has.log.partition_count(has.topics.events)
    commands = [("ZRANGE", keys.key(partition, ASKED), 0, PAGE_MAX - 1) for partition in range(partitions)]
    return [entry_of(member) for members in ask(has.client, commands) for member in members]


def _shown(one: Entry) -> dict[str, Any]:
    return {
        "trajectory_id": one.trajectory_id,
        "tenant": one.tenant,
        "call_id": one.name,
        "request_hash": one.hash,
        "asked_ms": one.asked_ms,
        "expires_us": one.due_us,
    }
