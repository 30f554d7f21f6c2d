"""All trajectories as one stream of server-sent events: whose they are, where it goes on, and who never reads."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.integration.test_api_slow import until_streams
from tests.support.chains import append_all, run_of
from tests.support.serving import Api, serving, token
from tracklog.consumers.api import streams
from tracklog.consumers.watching import Token

WAIT_S: Final = 20.0
LARGE: Final = 60_000
PATIENCE_S: Final = 2.0


@pytest.fixture
def api(redis_db: str, tmp_path: Path) -> Iterator[Api]:
    with serving(redis_db, tmp_path) as served:
        yield served


def append(api: Api, *names: str, **given: Any) -> int:
    made = [record for name in names for record in run_of(name, **given).records]
    append_all(api.world.new_log(), api.services.topics.events, made)
    return len(made)


@pytest.mark.parametrize("query", ["status=running", "agent=planner"])
def test_a_filter_by_what_nobody_folds_is_refused_and_names_who_would(api: Api, query: str) -> None:
    status, said = api.ask("GET", f"/events/stream?from=beginning&{query}", who="viewer")
    assert (status, "no projection 'trajectories'" in said["error"]) == (503, True)
    assert "tracklog process" in said["hint"]
    assert Told(api, "from=end&type=ToolResult").status == 200


class Told:
    """A client that takes a stream frame by frame."""

    def __init__(self, api: Api, query: str = "from=beginning", who: str = "viewer", last: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=WAIT_S)
        headers = {"Authorization": f"Bearer {token(who)}", **({"Last-Event-ID": last} if last else {})}
        self._connection.request("GET", f"/events/stream?{query}", headers=headers)
        self._answer = self._connection.getresponse()
        self.status = self._answer.status

    def frame(self) -> dict[str, str]:
        """Its lines by name; a comment is named by nothing."""
        found = dict[str, str]()
        while line := self._answer.readline().decode().rstrip("\n"):
            name, _, text = line.partition(": ")
            found[name] = text
        return found

    def events(self, count: int) -> list[dict[str, Any]]:
        frames = [self.frame() for _ in range(count)]
        return [{**json.loads(one["data"]), "id": one["id"], "event": one["event"]} for one in frames]

    def said(self) -> Any:
        return json.loads(self._answer.read())

    def leave(self) -> None:
        self._connection.close()


async def test_all_events_come_once_and_go_on_behind_the_last_one(api: Api) -> None:
    count = append(api, "run-1", "run-2", turns=2, tenant="default")
    whole = Told(api)
    found = await asyncio.to_thread(whole.events, count)
    for name in ("run-1", "run-2"):
        seqs = [one["seq"] for one in found if one["trajectory_id"] == name]
        assert seqs == list(range(count // 2))
    assert all(one["event"] == one["type"] and one["id"] == one["token"] for one in found)
    # when one is cut, and goes on
    rest = Told(api, "from=beginning", last=found[4]["id"])
    followed = await asyncio.to_thread(rest.events, count - 5)
    assert [one["id"] for one in followed] == [one["id"] for one in found[5:]]
    assert [one["trusted"] for one in followed].count(True) <= 2
    # and what comes now reaches both
    append(api, "run-3", turns=1, tenant="default")
    for one in (whole, rest):
        assert (await asyncio.to_thread(one.events, 1))[0]["trajectory_id"] == "run-3"
        one.leave()
    await until_streams(api, 0)


async def test_a_tenant_sees_its_own_only_and_filters_hold(api: Api) -> None:
    append(api, "other", tenant="elsewhere", turns=1)
    append(api, "run-1", tenant="default", turns=1)
    append(api, "run-2", tenant="default", turns=1, ending=None)
    api.fold()
    for query, who, expected in (
        ("type=TaskStarted", "viewer", ["run-1", "run-2"]),
        ("type=TaskStarted", "stranger-viewer", ["other"]),
        ("type=TaskStarted&status=running", "viewer", ["run-2"]),
        ("type=TaskStarted&type=TaskEnded&status=completed&agent=agent", "viewer", ["run-1", "run-1"]),
    ):
        told = Told(api, f"from=beginning&{query}", who)
        found = await asyncio.to_thread(told.events, len(expected))
        told.leave()
        await until_streams(api, 0)
        assert [one["trajectory_id"] for one in found] == expected, query
    assert Told(api, "tenant=elsewhere").status == 403
    for query, word in (
        ("type=Nothing", "no event type"),
        ("from=yesterday", "no bound"),
        ("from=9:1", "no partition"),
    ):
        told = Told(api, query)
        assert told.status == 422, query
        assert word in told.said()["error"], query
    assert Told(api, last="nonsense").status == 422


async def test_while_nothing_comes_a_sign_of_life_moves_the_place_on(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BEAT_S", 0.3)
    append(api, "other", tenant="elsewhere", turns=1)
    told = Told(api)
    beat = await asyncio.to_thread(told.frame)
    told.leave()
    log, topic = api.world.new_log(), api.services.topics.events
    ends = {p: log.bounds(topic, p).end for p in range(log.partition_count(topic))}
    assert set(beat) == {"", "id"}
    assert Token.of(beat["id"]) == Token(ends)


async def test_who_never_reads_is_cut_off_and_goes_on_where_it_was(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SEND_S_MAX", PATIENCE_S)
    count = append(api, *(f"run-{n}" for n in range(40)), tenant="default", turns=2, padding=LARGE)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", api.port))
        head = f"GET /events/stream?from=beginning HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token('viewer')}"
        client.sendall(f"{head}\r\n\r\n".encode())
        await until_streams(api, 1)
        await until_streams(api, 0)  # and its place is free
        taken = b""
        while piece := await asyncio.to_thread(client.recv, 1 << 16):
            taken += piece
    ids = [line[4:].decode() for line in taken.split(b"\n") if line.startswith(b"id: ")]
    assert 0 < len(ids) < count
    rest = Told(api, last=ids[-2])
    found = await asyncio.to_thread(rest.events, count - len(ids) + 1)
    rest.leave()
    assert len({one["event_id"] for one in found}) == len(found)


async def test_a_projection_that_does_not_move_ends_a_stream_that_asks_for_statuses(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracklog.consumers.watching.STANDING_S_MAX", 0.3)
    append(api, "run-1", tenant="default", turns=1)
    api.fold()
    append(api, "run-2", tenant="default", turns=1)
    told = Told(api, f"from=beginning&status={quote('completed')}")
    frame = await asyncio.to_thread(told.frame)
    assert frame["event"] == "error"
    assert "was to be seen" in json.loads(frame["data"])["error"]
