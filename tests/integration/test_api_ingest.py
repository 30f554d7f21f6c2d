"""Recording over HTTP: what clients are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.recording import RUN, ended, said, start, turn
from tests.support.serving import Api, serving
from tests.support.writing import read_accepted

EVENTS = f"/trajectories/{RUN}/events"


@pytest.fixture
def api(redis_db: str, tmp_path: Path) -> Iterator[Api]:
    with serving(redis_db, tmp_path) as served:
        yield served


def send(api: Api, first: int, events: list[object], who: str = "recorder") -> tuple[int, Any]:
    return api.ask("POST", EVENTS, {"client": "ts", "first": first, "events": events}, who)


def test_a_run_is_recorded_and_shown(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "tracklog.audit"):
        assert api.ask("POST", "/trajectories", start(), "recorder")[0] == 201
        status, answer = send(api, 1, [said(), *turn("c1"), *ended()])
    assert (status, answer["first"], answer["next"], answer["seqs"]) == (200, 1, 10, list(range(2, 11)))
    api.fold()
    (listed,) = api.ask("GET", "/trajectories", who="viewer")[1]["trajectories"]
    assert (listed["trajectory_id"], listed["driver"], listed["status"]) == (RUN, "ingest", "completed")
    shown = api.ask("GET", f"{EVENTS}?seen={answer['seen']}", who="viewer")[1]["events"]
    assert shown[answer["seqs"][-1]]["hash"] == answer["hash"]
    # and who did it is in the audit log
    lines = [json.loads(one.getMessage()) for one in caplog.records if one.name == "tracklog.audit"]
    told = [(line["who"], line["what"], line["trajectory"], line["detail"]) for line in lines]
    assert told == [("recorder", "record", RUN, "0"), ("recorder", "record", RUN, "1-9")]


def test_what_cannot_be_taken_is_named_by_index_field_and_reason(api: Api) -> None:
    assert api.ask("POST", "/trajectories", start(), "recorder")[0] == 201
    before = len(read_accepted(api.world.new_log(), RUN))
    for bad, index, field in (
        ({"type": "ToolResult", "call_id": "c", "status": "fine"}, 1, "status"),
        ({"type": "ToolResult", "status": "ok"}, 1, "call_id"),
        ({"type": "ToolIntent", **turn("c")[3], "place": "inline"}, 1, "place"),
        ({"type": "Observed", "kind": "step", "name": "n", "occurrence": -1, "value": 1}, 1, "occurrence"),
        ({**said(), "approver": "ada"}, 1, "approver"),
        ({"type": "ModelReplied", "reply": {"role": "user"}}, 1, "reply"),
    ):
        status, told = send(api, 1, [said(), bad])
        assert (status, told["index"], told["field"]) == (422, index, field), told
        assert told["reason"], told
    for strange in ("OwnershipClaimed", "ApprovalResolved", "MessageSent", "TimerSet", "Nothing"):
        status, told = send(api, 1, [{"type": strange}])
        assert (status, told["index"]) == (422, 0), told
    status, told = send(api, 1, [said(), {"type": "ToolResult", "call_id": "c1", "status": "ok"}])
    assert (status, told["index"], told["type"]) == (409, 1, "ToolResult"), told
    assert send(api, 3, [said()])[1]["next"] == 1
    assert len(read_accepted(api.world.new_log(), RUN)) == before


def test_who_may_not_is_told_so(api: Api) -> None:
    assert api.ask("POST", "/trajectories", start(), "operator")[0] == 403
    assert api.ask("POST", "/trajectories", start(), "recorder")[0] == 201
    assert send(api, 1, [said()], "stranger-recorder")[0] == 404
    # of two persons each has clients of their own
    status, told = api.ask("POST", "/trajectories", start(tenant="elsewhere"), "stranger-recorder")
    assert status == 409
    assert "run-1" in told["error"]
    assert api.ask("POST", f"/trajectories/{RUN}/release", {"client": "other"}, "recorder")[0] == 409
    assert api.ask("POST", f"/trajectories/{RUN}/release", {"client": "ts"}, "recorder")[0] == 200


def test_the_description_shows_each_event_type(api: Api) -> None:
    schemas = api.ask("GET", "/openapi.json")[1]["components"]["schemas"]
    types = schemas["Batch"]["properties"]["events"]["items"]["discriminator"]["mapping"]
    assert {"ContextBuilt", "ModelReplied", "ToolIntent", "ToolResult", "TaskEnded"} < set(types)
    assert "task" in schemas["Start"]["required"]
