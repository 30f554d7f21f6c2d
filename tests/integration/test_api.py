"""The HTTP API as clients meet it: a real server on loopback, over a log in memory and Valkey."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serving import BODY_MAX, HELD, Api, serving, token
from tests.support.sessions import TRAJECTORY, ScriptedModel, asks, says
from tracklog.consumers.api import seeing
from tracklog.consumers.api.limits import RateLimit
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.partitioner import partition_of
from tracklog.schemas import events as ev
from tracklog.schemas.errors import ApprovalNeeded
from tracklog.schemas.values import Choice


@pytest.fixture
def api(redis_db: str, tmp_path: Path) -> Iterator[Api]:
    with serving(redis_db, tmp_path) as served:
        yield served


async def test_a_held_call_is_found_decided_and_goes_on(api: Api) -> None:
    # given a run that waits
    await api.held()
    status, misspelt = api.ask("GET", "/trajectories?status=runing", who="viewer")
    assert (status, misspelt["error"]) == (422, "there is no status 'runing'")
    status, found = api.ask("GET", "/approvals", who="viewer")
    assert (status, [one["call_id"] for one in found["approvals"]]) == (200, ["call-1"])
    assert (found["approvals"][0]["tool"], found["next"], found["total"]) == ("readonly", None, 1)
    log = api.world.new_log()
    assert found["as_of"] == {str(one): log.bounds("tracklog.events", one).end for one in range(2)}
    assert api.ask("GET", "/escalations")[1]["as_of"] == found["as_of"]
    # when somebody with the role decides, naming nobody
    path = f"/trajectories/{TRAJECTORY}/calls/call-1/decision"
    assert api.ask("POST", path, {"choice": "approve", "request_hash": "0" * 64}, "approver")[0] == 409
    asked = {"choice": "approve", "request_hash": found["approvals"][0]["request_hash"]}
    status, _ = api.ask("POST", path, asked, "approver")
    await api.go_on()
    # then it is in the record as theirs, and nothing waits
    assert status == 202
    (resolved,) = api.world.bodies(ev.ApprovalResolved)
    assert (resolved.choice, resolved.approver) == (Choice.APPROVE, "approver")
    assert api.ask("GET", "/approvals")[1]["approvals"] == []
    assert api.ask("POST", path, {"choice": "deny"}, "approver")[0] == 409


async def test_nobody_says_in_a_body_who_they_are_and_a_get_decides_nothing(api: Api) -> None:
    await api.held()
    path = f"/trajectories/{TRAJECTORY}/calls/call-1/decision"

    assert api.ask("POST", path, {"choice": "approve", "approver": "boss"}, "approver")[0] == 422
    for _ in range(20):
        assert api.ask("GET", path, who="approver")[0] == 405
    with pytest.raises(ApprovalNeeded):
        await api.go_on()


async def test_an_answer_says_how_far_it_is_folded_and_waits_for_what_is_to_be_seen(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a run of which the last event is not folded yet
    await api.held()
    log, topic = api.world.new_log(), api.services.topics.events
    as_of = api.ask("GET", "/trajectories")[1]["as_of"]
    partition = partition_of(TRAJECTORY.encode(), log.partition_count(topic))
    assert as_of == {str(p): log.bounds(topic, p).end for p in range(log.partition_count(topic))}
    end = as_of[str(partition)]

    # when a position is asked for that is folded, it is answered; one that is not, is waited for and then named
    for path in ("/trajectories", "/approvals", "/escalations", f"/trajectories/{TRAJECTORY}"):
        assert api.ask("GET", f"{path}?seen={partition}:{end - 1}", who="viewer")[0] == 200, path
    monkeypatch.setattr(seeing, "WAIT_S", 0.2)
    status, said = api.ask("GET", f"/trajectories/{TRAJECTORY}/events?seen={partition}:{end}")
    assert (status, said["partition"], said["wanted"], said["present"]) == (503, partition, end, end)
    assert "the log itself ends" in said["hint"]
    assert api.ask("GET", "/trajectories?seen=9:1")[0] == 422
    assert api.ask("GET", "/trajectories?seen=x")[0] == 422

    # and it is answered when it is folded meanwhile
    monkeypatch.setattr(seeing, "WAIT_S", 20.0)
    asked = asyncio.create_task(asyncio.to_thread(api.ask, "GET", f"/trajectories/{TRAJECTORY}?seen={partition}:{end}"))
    model = ScriptedModel(asks(("call-1", "readonly")), says("done"))
    with pytest.raises(ApprovalNeeded):
        await api.world.run(model, policy=HELD, clock=SystemClock())  # claims it anew
    assert log.bounds(topic, partition).end > end
    assert not asked.done()
    await asyncio.to_thread(api.fold)
    status, state = await asked
    assert (status, state["trajectory_id"]) == (200, TRAJECTORY)


async def test_what_is_written_is_answered_with_its_place(api: Api) -> None:
    await api.held()
    inbox = api.services.topics.inbox
    at = [
        api.ask(*given)[1]["position"]
        for given in (
            ("PUT", "/trajectories/new-1/task", {"agent": "a", "task": "t"}),
            ("POST", f"/trajectories/{TRAJECTORY}/messages", {"text": "hello"}),
            ("POST", f"/trajectories/{TRAJECTORY}/cancel", {}),
        )
    ]
    log = api.world.new_log()
    for place in at:
        assert place["topic"] == inbox
        assert place["offset"] < log.bounds(inbox, place["partition"]).end
    assert len({(one["partition"], one["offset"]) for one in at}) == 3


async def test_what_went_into_an_inbox_is_waited_for_until_it_was_taken(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a decision that nobody has taken
    await api.held()
    path = f"/trajectories/{TRAJECTORY}/calls/call-1/decision"
    seen = api.ask("POST", path, {"choice": "approve"}, "approver")[1]["seen"]
    monkeypatch.setattr(seeing, "WAIT_S", 0.2)
    status, said = api.ask("GET", f"/trajectories/{TRAJECTORY}?seen={seen}")
    assert (status, f"inbox:{said['inbox_partition']}:{said['inbox_offset']}") == (503, seen)
    assert "tracklog worker" in said["hint"]
    # when it is taken and folded while somebody asks for it
    monkeypatch.setattr(seeing, "WAIT_S", 20.0)
    asked = asyncio.create_task(asyncio.to_thread(api.ask, "GET", f"/trajectories/{TRAJECTORY}/events?seen={seen}"))
    await api.go_on()
    # then the answer has it, in whatever is read
    status, found = await asked
    assert (status, "ApprovalResolved" in [one["type"] for one in found["events"]]) == (200, True)
    assert api.ask("GET", f"/approvals?seen={seen}")[1]["approvals"] == []
    for wrong in ("inbox:0:999", "inbox:9:0", "inbox:x", "inbox:"):
        assert api.ask("GET", f"/trajectories?seen={wrong}")[0] == 422, wrong


async def test_events_come_in_pages_and_as_a_stream_that_goes_on(api: Api) -> None:
    await api.held()
    first = api.ask("GET", f"/trajectories/{TRAJECTORY}/events?limit=3")[1]
    assert ([one["seq"] for one in first["events"]], first["next"]) == ([0, 1, 2], 2)
    rest = api.ask("GET", f"/trajectories/{TRAJECTORY}/events?after=2")[1]
    assert (rest["events"][0]["seq"], rest["next"]) == (3, None)
    (last,) = api.ask("GET", f"/trajectories/{TRAJECTORY}/events?after={rest['events'][-1]['seq'] - 1}")[1]["events"]
    assert last == rest["events"][-1]
    # when a stream is opened behind an event, and the run ends
    api.ask("POST", f"/trajectories/{TRAJECTORY}/calls/call-1/decision", {"choice": "approve"}, "approver")
    await api.go_on()
    streamed = await asyncio.to_thread(stream, api, 2)
    # then it gives every later event once, in order, and ends
    seqs = [int(line[4:]) for line in streamed.splitlines() if line.startswith("id: ")]
    assert seqs == list(range(3, seqs[-1] + 1))
    assert "event: TaskEnded" in streamed


def stream(api: Api, after: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=20)
    headers = {"Authorization": f"Bearer {token('viewer')}", "Last-Event-ID": str(after)}
    connection.request("GET", f"/trajectories/{TRAJECTORY}/stream", headers=headers)
    return connection.getresponse().read().decode()


@pytest.mark.parametrize("wrong", ["abc", "-1", "1.5", "\u0661", "9" * 30])
async def test_a_stream_that_is_to_go_on_at_no_seq_is_refused_by_name(api: Api, wrong: str) -> None:
    await api.held()
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=20)
    headers = {"Authorization": f"Bearer {token('viewer')}".encode(), "Last-Event-ID": wrong.encode()}

    connection.request("GET", f"/trajectories/{TRAJECTORY}/stream", headers=headers)

    answer = connection.getresponse()
    said = json.loads(answer.read())
    assert (answer.status, "last-event-id" in said["error"].lower(), bool(said["hint"])) == (422, True, True), said


@pytest.mark.parametrize(
    ("path", "body", "named", "way"),
    [
        ("/trajectories?limit=0", None, "in the query, limit", "limit is 1 at least"),
        ("/trajectories?label=x", None, "label='x'", "label=name=value"),
        ("/trajectories?seen=x", None, "seen: 'x'", "PARTITION:OFFSET"),
        ("/trajectories/new-1/task", {"agent": "a"}, "in the body, task", "send task"),
        ("/trajectories/new-1/task", {"agent": "a", "task": "t", "x": 1}, "in the body, x", "leave x out"),
        ("/trajectories/new-1/task", {"agent": "a b", "task": "t"}, "in the body, agent", "agent is to match"),
    ],
)
def test_what_does_not_fit_is_named_with_the_way_out(
    api: Api, path: str, body: dict[str, object] | None, named: str, way: str
) -> None:
    status, said = api.ask("GET" if body is None else "PUT", path, body)

    assert (status, named in said["error"], way in said["hint"]) == (422, True, True), said


async def test_what_is_said_twice_is_taken_once(api: Api) -> None:
    await api.held()
    said = {"client_id": "judge-1", "name": "score", "value": "0.5"}
    for _ in range(3):
        assert api.ask("POST", f"/trajectories/{TRAJECTORY}/annotations", said, "viewer")[0] == 202
    api.ask("POST", f"/trajectories/{TRAJECTORY}/calls/call-1/decision", {"choice": "deny"}, "approver")
    await api.go_on()
    (one,) = api.world.bodies(ev.Annotated)
    assert (one.source, one.client_id) == ("viewer", "judge-1")


def test_a_request_that_is_too_large_or_makes_no_sense_is_told_so(api: Api) -> None:
    large = api.ask("PUT", "/trajectories/new-1/task", {"agent": "a", "task": "x" * (BODY_MAX + 1)})
    assert large[0] == 413
    assert api.ask("PUT", "/trajectories/new-1/task", {"agent": "a"})[0] == 422
    assert api.ask("PUT", "/trajectories/%00/task", {"agent": "a", "task": "t"})[0] == 422
    assert api.ask("GET", "/trajectories?cursor=nonsense")[0] in (422, 503)
    assert api.ask("PUT", "/trajectories/new-1/task", {"agent": "a", "task": "t", "tenant": "elsewhere"})[0] == 403
    assert api.ask("PUT", "/trajectories/new-1/task", {"agent": "a", "task": "t"})[0] == 202


def test_a_tokens_file_that_cannot_be_read_leaves_all_as_it_was_and_is_shown(api: Api, tmp_path: Path) -> None:
    # given a file that was broken, once it is looked at again
    (tmp_path / "tokens.toml").write_text("broken = [")
    tokens = api.services.tokens
    assert tokens is not None
    tokens.look()
    # then those who were known are, and whoever watches the server sees it
    assert api.ask("GET", "/trajectories/none", who="viewer")[0] == 404
    status, said = api.ask("GET", "/readyz")
    assert status == 503
    assert "tokens.toml" in said["error"]


async def test_every_change_is_a_line_of_the_audit_log(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    await api.held()
    with caplog.at_level("INFO", "tracklog.audit"):
        api.ask("POST", f"/trajectories/{TRAJECTORY}/cancel", {"reason": "enough"}, "operator")
    (line,) = [json.loads(one.getMessage()) for one in caplog.records if one.name == "tracklog.audit"]
    assert (line["who"], line["what"], line["trajectory"]) == ("operator", "cancel", TRAJECTORY)


def test_above_the_rate_the_answer_says_when_to_come_again(api: Api) -> None:
    api.services.rate = RateLimit(1.0, api.services.clock)
    statuses = [api.ask("GET", "/trajectories")[0] for _ in range(3)]
    assert statuses[-1] == 429
