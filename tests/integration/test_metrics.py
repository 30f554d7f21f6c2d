"""Every role shows what the catalogue says that it shows, and its numbers are those of the runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.standing import Installation, Standing
from tracklog.infra.metrics_catalogue import CATALOGUE, Kind
from tracklog.infra.stack.ports import free_ports
from tracklog.infra.stack.process import wait_until

AGENTS = ("tests.support.standing_views:clerk", "tests.support.standing_views:asker")
RUNS = 2
WAIT_S = 60.0
ROLES = {
    "process": ("process",),
    "worker": ("worker", *AGENTS),
    "dispatch": ("dispatch", "tests.support.standing_views:mail"),
    "route": ("route",),
    "serve": ("serve",),
}
SELDOM = {
    "tracklog_retention_left_seconds": "topics keep records for ever",
    "tracklog_skipped_offsets_total": "nothing was deleted",
    "tracklog_sample_failures_total": "all could be had",
    "tracklog_webhooks_total": "there are no webhooks",
    "tracklog_webhooks_telling": "there are no webhooks",
}
"""What is not to be seen in an installation where all is well, and why."""


@pytest.fixture(scope="module")
def standing(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Standing]]:
    """All roles over one log, with runs that ended and one that waits for a person."""
    folder = tmp_path_factory.mktemp("metrics")
    (port,) = free_ports(1)
    settings = {"api.port": port, "worker.dispatches": True}
    here = Installation(f"sqlite:{folder / 'log.db'}", redis_url, f"m{folder.name[-1]}", folder / "home", settings)
    with ExitStack() as stack:
        roles = {role: stack.enter_context(here.standing(*words)) for role, words in ROLES.items()}
        for number in range(RUNS):
            here.run("submit", "clerk", "look", "--id", f"run-{number}")
        here.run("submit", "asker", "mail", "--id", "held")
        process, route = roles["process"], roles["route"]
        assert wait_until(lambda: _value(process, "tracklog_trajectories", "completed") == RUNS, WAIT_S)
        assert wait_until(lambda: _value(route, "tracklog_approvals_open") == 1, WAIT_S)
        roles["serve"].until("/readyz", 200)
        yield roles


def _value(one: Standing, *key: str) -> float | None:
    return one.series().get(key)


def test_every_role_shows_its_metrics_and_no_others(standing: dict[str, Standing], api_asked: None) -> None:
    for role, one in standing.items():
        shown = {_base(name) for name in one.names()}
        listed = {metric.name for metric in CATALOGUE if metric.roles == "all" or role in metric.roles.split(", ")}
        assert shown - listed == set(), role
        assert listed - shown - set(SELDOM) == set(), role


@pytest.fixture
def api_asked(standing: dict[str, Standing]) -> None:
    """A request to the API itself: what it counts is there then."""
    import urllib.request

    said = standing["serve"].said.read_text()
    url = said.partition("serving ")[2].partition(" ")[0]
    with urllib.request.urlopen(f"{url}/trajectories", timeout=WAIT_S) as answer:
        assert answer.status == 200


def _base(name: str) -> str:
    histograms = {metric.name for metric in CATALOGUE if metric.kind is Kind.HISTOGRAM}
    found = next((one for one in ("_bucket", "_sum", "_count", "_created") if name.endswith(one)), "")
    base = name.removesuffix(found)
    return base if base in histograms or found == "" else name.replace("_created", "_total")


def test_numbers_are_those_of_the_runs(standing: dict[str, Standing]) -> None:
    found = standing["process"].series()
    assert found["tracklog_model_tokens_total", "input", "scripted-1", "default"] == RUNS * 3 * 100
    assert found["tracklog_model_cost_usd_total", "scripted-1", "default"] == pytest.approx(RUNS * 3 * 0.0015)
    assert found["tracklog_tool_calls_total", "ok", "look"] == RUNS
    assert found["tracklog_tool_calls_total", "ok", "mail"] == RUNS
    assert found["tracklog_records_total", "TaskEnded", "accepted"] == RUNS
    assert found["tracklog_trajectories_started_total", "worker"] == RUNS + 1
    assert found["tracklog_trajectories", "waiting"] == 1
    assert found["tracklog_calls_in_doubt",] == 0


def test_a_run_that_is_held_is_no_backlog(standing: dict[str, Standing]) -> None:
    found = standing["worker"].series()
    assert (found["tracklog_worker_runnable",], found["tracklog_worker_running",]) == (0, 0)
    assert found["tracklog_worker_known",] == RUNS + 1
    assert found["tracklog_barrier_seconds_count",] > 0


def test_requests_are_counted_by_route_and_status(standing: dict[str, Standing], api_asked: None) -> None:
    assert standing["serve"].series()["tracklog_api_requests_total", "GET", "/trajectories", "200"] >= 1
