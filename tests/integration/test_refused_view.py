"""What owners refused, from Redis: in pages, as the log says, and the log where nobody folds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.chains import Chain, append_all
from tracklog.consumers import refusals as refusals_module
from tracklog.consumers.cli.app import app
from tracklog.consumers.refusals import Reason, Refusal, refusals
from tracklog.consumers.refused_view import RefusedPage
from tracklog.infra.log.open import open_log
from tracklog.schemas import events as ev
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Body, Driver, Ending, InboxId

TOPICS = Topics()
WORDS = ("call c1 is not open where calls are dispatched (any more)", "the trajectory has ended", "call c1: no")
RUNS = 9
Tracklog = Callable[..., Result]


def chain(number: int, name: str = "") -> Chain:
    """A run that refused two records; every third is cancelled, and refuses one more cancel and one of a parent."""
    made = Chain(name or f"run-{number}", tenant=("acme", "umbrella")[number % 2])
    made.claim()
    made.add(ev.TaskStarted(driver=Driver.WORKER, task=Body.of("t"), agent="a"))
    for n in range(2):
        said = InboxId(source="job", seq=n)
        made.add(ev.InboxRefused(refused=said, kind="Outcome", reason=WORDS[(number + n) % len(WORDS)]))
    made.add(ev.TaskEnded(ending=Ending.CANCELLED if number % 3 == 0 else Ending.COMPLETED))
    if number % 3 == 0:
        said = InboxId(source="cancel:again", seq=0)
        made.add(ev.InboxRefused(refused=said, kind="Cancel", reason="the trajectory has ended"))
    return made


@pytest.fixture
def tracklog(tmp_path: Path, redis_db: str, monkeypatch: pytest.MonkeyPatch) -> Tracklog:
    url = f"sqlite:{tmp_path / 'log.db'}"
    monkeypatch.chdir(tmp_path)
    runner = CliRunner(env={"TRACKLOG_HOME": str(tmp_path / "data")})

    def run(*words: object, exit_code: int = 0) -> Result:
        result = runner.invoke(app, ["--log", url, "--redis", redis_db, *map(str, words)])
        assert result.exit_code == exit_code, (words, result.output, result.exception)
        return result

    run("topics", "apply")
    log = open_log(url)
    for number in range(RUNS):
        append_all(log, TOPICS.events, chain(number).records)
    log.close()
    return run


def pages(tracklog: Tracklog, *words: str) -> list[dict[str, Any]]:
    found, cursor = list[dict[str, Any]](), list[str]()
    while True:
        page = json.loads(tracklog("refused", "--limit", 4, "--json", *words, *cursor).stdout)
        assert page["source"] == "refused-v1"
        assert page["as_of"]
        found += page["refused"]
        if page["next"] is None:
            return found
        cursor = ["--cursor", page["next"]]


def test_it_is_what_the_log_says_in_pages_without_what_kept_nobody_from_anything(
    tracklog: Tracklog, tmp_path: Path
) -> None:
    tracklog("process", "trajectories", "refused", "--once")
    found = pages(tracklog)

    log = open_log(f"sqlite:{tmp_path / 'log.db'}")
    asked = {one.event_offset: one._asdict() for one in refusals(log, TOPICS)}
    log.close()
    names = ("trajectory_id", "tenant", "kind", "source", "seq", "reason", "words", "event_seq", "timestamp_ms")
    cancels = [one for one in asked.values() if one["kind"] == "Cancel"]
    told = {(one["trajectory_id"], one["event_seq"]): one for one in found}
    assert len(told) == len(found) == 2 * RUNS
    for one in asked.values():
        if one not in cancels:
            mine = told[one["trajectory_id"], one["event_seq"]]
            assert {name: mine[name] for name in names} == {name: one[name] for name in names}
    times = [one["timestamp_ms"] for one in found]
    assert times == sorted(times, reverse=True)
    acme = pages(tracklog, "--tenant", "acme")
    assert acme == [one for one in found if one["tenant"] == "acme"]
    assert pages(tracklog, "--reason", "ended") == [one for one in found if one["reason"] == "ended"]
    assert "--from-log" in tracklog("refused").stderr
    tracklog("projections", "verify", "refused")


def test_a_second_text_under_one_client_id_is_among_them_once_on_the_page_of_its_time(
    tracklog: Tracklog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(f"sqlite:{tmp_path / 'log.db'}")
    append_all(log, TOPICS.events, chain(1, "talking").records[:2])
    log.close()
    tracklog("process", "trajectories", "refused", "--once")
    before = pages(tracklog)
    for text in ("first", "first", "another"):
        tracklog("send", "talking", text, "--client-id", "mine-1")

    found = pages(tracklog)

    (new,) = (one for one in found if one not in before)
    assert (new["trajectory_id"], new["kind"], new["reason"], new["offset"]) == ("talking", "Message", "altered", 2)
    assert found == [new, *before], "it is the newest"
    assert "altered" in tracklog("refused").stdout
    assert new not in pages(tracklog, "--tenant", "acme")
    assert new not in pages(tracklog, "--reason", "ended")
    logged = json.loads(tracklog("refused", "--from-log", "--reason", "altered", "--json").stdout)
    assert [one["offset"] for one in logged["refused"]] == [2]
    monkeypatch.setattr(refusals_module, "NEWEST_MAX", 1)
    assert new not in pages(tracklog), "its first is no longer looked at"


def test_pages_and_what_is_added_by_its_time_meet_without_a_gap_and_without_an_overlap() -> None:
    def at(ms: int) -> Refusal:
        return Refusal("t", "", "Message", "s", 0, "", Reason.ALTERED, "", "inbox", 0, 0, None, None, ms)

    added = [at(ms) for ms in range(10)]
    parts = [RefusedPage([], None, low, high) for low, high in ((7, None), (7, 7), (2, 7), (None, 2))]

    found = [[one.timestamp_ms for one in part.joined(added).rows] for part in parts]

    assert found == [[9, 8, 7], [], [6, 5, 4, 3, 2], [1, 0]]


def test_where_nobody_folds_it_the_log_is_read_and_that_is_said(tracklog: Tracklog) -> None:
    told = tracklog("refused", "--json")
    assert json.loads(told.stdout)["source"] == "log"
    assert "the whole log is read" in told.stderr
    assert "'refused'" in told.stderr
    assert "no pages" in tracklog("refused", "--from-log", "--cursor", "1:x", exit_code=2).stderr
    tracklog("process", "trajectories", "refused", "--once")
    assert "no cursor" in tracklog("refused", "--cursor", "x", exit_code=2).stderr
    # of one trajectory, and with a reason that no event names, the log is asked
    assert json.loads(tracklog("refused", "run-1", "--json").stdout)["source"] == "log"
    assert json.loads(tracklog("refused", "--reason", "altered", "--json").stdout)["source"] == "log"
