"""Each route of the API, taken from the application itself: a new one cannot be forgotten here."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from fastapi.routing import APIRoute

from tests.support.serving import ROLES, Api, serving
from tests.support.sessions import TRAJECTORY
from tracklog.consumers.api.app import ROUTERS

STRANGE_ID: Final = "team/a%2Fb/run 1"
"""Has a slash, and a percent sign that looks like an encoded one."""


class Call(NamedTuple):
    """How a route is called so that nothing is wrong with it but who calls; `role` None: it asks for no token."""

    role: str | None
    body: dict[str, Any] | str | None = None
    other_tenant: int = 404
    """What somebody of another tenant is told."""
    query: str = ""


CALLS: Final[dict[tuple[str, str], Call]] = {
    ("GET", "/healthz"): Call(None),
    ("GET", "/readyz"): Call(None),
    ("GET", "/events/stream"): Call("viewer", other_tenant=403, query="?tenant=default"),
    ("GET", "/spend"): Call("viewer", other_tenant=200, query="?day=2026-03-01"),
    ("GET", "/tool-stats"): Call("viewer", other_tenant=403, query="?tool=pay"),
    ("GET", "/activity"): Call("viewer", other_tenant=403, query="?at=2026-03-01"),
    ("GET", "/totals/{name}"): Call("viewer", other_tenant=403, query="?key=moving"),
    ("GET", "/trajectories"): Call("viewer", other_tenant=200),
    ("GET", "/trajectories/{trajectory_id}"): Call("viewer"),
    ("GET", "/trajectories/{trajectory_id}/events"): Call("viewer"),
    ("GET", "/trajectories/{trajectory_id}/stream"): Call("viewer"),
    ("GET", "/trajectories/{trajectory_id}/tokens"): Call("viewer"),
    ("PUT", "/trajectories/{trajectory_id}/task"): Call("operator", {"agent": "a", "task": "t"}, other_tenant=403),
    ("POST", "/trajectories/{trajectory_id}/messages"): Call("operator", {"text": "hello"}),
    ("POST", "/trajectories/{trajectory_id}/cancel"): Call("operator", {}),
    ("POST", "/trajectories/{trajectory_id}/retry"): Call("operator", {}),
    ("POST", "/trajectories/{trajectory_id}/outcomes"): Call("operator", {"call_id": "call-1", "status": "ok"}),
    ("GET", "/approvals"): Call("viewer", other_tenant=200),
    ("POST", "/trajectories/{trajectory_id}/calls/{call_id}/decision"): Call("approver", {"choice": "approve"}),
    ("GET", "/answers/{trajectory_id}/{call_id}/{request_hash}"): Call(None),
    ("POST", "/answers/{trajectory_id}/{call_id}/{request_hash}"): Call("approver", "do=approve"),
    ("GET", "/escalations"): Call("viewer", other_tenant=200),
    ("GET", "/escalations/{trajectory_id}/{call_id}/{intent_hash}"): Call(None),
    ("POST", "/escalations/{trajectory_id}/{call_id}/{intent_hash}"): Call("operator", "do=happened"),
    ("POST", "/trajectories/{trajectory_id}/calls/{call_id}/settlement"): Call("operator", {"found": "happened"}),
    ("POST", "/trajectories/{trajectory_id}/annotations"): Call(
        "viewer", {"client_id": "c", "name": "score", "value": "1"}
    ),
    ("POST", "/trajectories"): Call(
        "recorder", {"id": "new-1", "client": "c", "agent": "a", "task": "t"}, other_tenant=403
    ),
    ("POST", "/trajectories/{trajectory_id}/events"): Call(
        "recorder", {"client": "c", "first": 1, "events": [{"type": "ContextBuilt"}]}
    ),
    ("POST", "/trajectories/{trajectory_id}/release"): Call("recorder", {"client": "c"}),
}


def routes() -> Iterator[tuple[str, str]]:
    for router in ROUTERS:
        for route in router.routes:
            assert isinstance(route, APIRoute)
            yield from ((method, route.path) for method in route.methods or ())


def path_of(route: str, trajectory_id: str = TRAJECTORY) -> str:
    return route.format(
        trajectory_id=urllib.parse.quote(trajectory_id, safe=""),
        call_id="call-1",
        name="pace",
        request_hash="0" * 64,
        intent_hash="0" * 64,
    )


@pytest.fixture
def api(redis_db: str, tmp_path: Path) -> Iterator[Api]:
    with serving(redis_db, tmp_path) as served:
        yield served


def test_each_route_is_in_the_table() -> None:
    assert sorted(routes()) == sorted(CALLS)


async def test_each_route_asks_for_a_token_for_its_role_and_for_the_tenant(api: Api) -> None:
    await api.held()
    for (method, route), call in CALLS.items():
        if call.role is None:
            continue
        path = path_of(route) + call.query
        assert api.ask(method, path, call.body, None)[0] == 401, route
        assert api.ask(method, path, call.body, "nobody")[0] == 401, route
        for who in (None, "nobody", f"stranger-{call.role}"):
            told = api.ask(method, path, call.body, who)
            assert told[0] < 400 or told[1].get("hint") or "<title>" in told[1]["error"], (route, told)
        for role in set(ROLES) - {call.role}:
            if call.role != "viewer":
                assert api.ask(method, path, call.body, role)[0] == 403, (route, role)
        stranger = f"stranger-{call.role}"
        assert api.ask(method, path, call.body, stranger)[0] == call.other_tenant, route
        if call.other_tenant == 200:
            (listed,) = [one for one in api.ask(method, path, who=stranger)[1].values() if isinstance(one, list)]
            assert listed == [], route
            sign = "&" if "?" in path else "?"
            assert api.ask(method, f"{path}{sign}tenant=default", who=stranger)[0] == 403, route


async def test_each_route_refuses_a_query_parameter_that_it_does_not_have(api: Api) -> None:
    for (method, route), call in CALLS.items():
        status, said = api.ask(method, f"{path_of(route)}?tennant=x", call.body, call.role)
        assert status == 422, route
        assert "'tennant'" in said["error"], route
    # and says which it has
    assert "it has tenant, status, tool" in api.ask("GET", "/trajectories?tennant=x")[1]["error"]


async def test_each_route_knows_ids_with_slashes_when_they_are_encoded(api: Api) -> None:
    quoted = urllib.parse.quote(STRANGE_ID, safe="")
    assert api.ask("PUT", f"/trajectories/{quoted}/task", {"agent": "a", "task": "t"})[1]["trajectory_id"] == STRANGE_ID
    for (method, route), call in CALLS.items():
        if "{trajectory_id}" not in route or method == "PUT":
            continue
        status, said = api.ask(method, path_of(route, STRANGE_ID), call.body, call.role)
        # then it is this trajectory that is asked about: nobody has begun it yet
        assert status == (404 if call.role else 200), route
        assert f"no trajectory {STRANGE_ID!r}" in said["error"] if call.role else STRANGE_ID in said["error"], route
    # a slash that is not encoded ends a segment
    assert api.ask("GET", "/trajectories/team/a")[0] == 404
