"""What is counted and sampled, under bounded labels."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families

from tracklog.infra.clock import ManualClock, SystemClock
from tracklog.infra.metrics import Metrics, Sample
from tracklog.infra.metrics_catalogue import BOUNDED, CATALOGUE, Kind
from tracklog.infra.stack.process import wait_until
from tracklog.schemas.errors import LogUnavailable

BOUND_S = 20.0


def read(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Values by name and label values, of ours alone."""
    families = text_string_to_metric_families(metrics.text().decode())
    samples = [one for family in families for one in family.samples if one.name.startswith("tracklog")]
    return {(one.name, *(one.labels[name] for name in sorted(one.labels))): one.value for one in samples}


def test_what_is_counted_is_shown_under_its_labels() -> None:
    metrics = Metrics(ManualClock(), sample_s=10)
    metrics.count("tracklog_tool_calls_total", tool="mail", status="ok")
    metrics.count("tracklog_tool_calls_total", 2, tool="mail", status="ok")
    metrics.observe("tracklog_tool_seconds", 0.2, tool="mail")
    found = read(metrics)
    assert found["tracklog_tool_calls_total", "ok", "mail"] == 3
    assert found["tracklog_tool_seconds_sum", "mail"] == 0.2
    assert found["tracklog_tool_seconds_bucket", "0.1", "mail"] == 0
    assert found["tracklog_tool_seconds_bucket", "0.3", "mail"] == 1


def test_a_label_has_so_many_values_and_the_rest_is_other() -> None:
    metrics = Metrics(ManualClock(), sample_s=10)
    most = BOUNDED["model"]
    for number in range(most + 2):
        metrics.count("tracklog_model_calls_total", tenant="t", model=f"m{number}")
    metrics.count("tracklog_model_calls_total", tenant="t", model="m0")
    found = {key[1]: value for key, value in read(metrics).items() if key[0] == "tracklog_model_calls_total"}
    assert len(found) == most + 1
    assert (found["m0"], found[f"m{most - 1}"], found["other"]) == (2, 1, 2)


def test_samples_past_the_bound_are_added_up() -> None:
    metrics = Metrics(ManualClock(), sample_s=10)
    metrics.sampled(
        "x",
        lambda: [
            Sample("tracklog_parked_trajectories", 1, {"processor": f"p{n}"}) for n in range(BOUNDED["processor"] + 2)
        ],
    )
    assert read(metrics)["tracklog_parked_trajectories", "other"] == 2


def test_what_a_store_is_asked_for_is_good_for_a_while() -> None:
    clock, asked = ManualClock(), []

    def sample() -> Iterator[Sample]:
        asked.append(1)
        yield Sample("tracklog_approvals_open", len(asked))

    metrics = Metrics(clock, sample_s=10)
    metrics.sampled("redis", sample, kept=True)
    assert [read(metrics)["tracklog_approvals_open",] for _ in range(2)] == [1, 1]
    clock.advance(10)
    assert read(metrics)["tracklog_approvals_open",] == 2


def test_a_source_that_is_away_shows_nothing_is_counted_and_keeps_nobody_else_from_being_shown() -> None:
    def away() -> Iterator[Sample]:
        yield Sample("tracklog_approvals_open", 1)
        raise LogUnavailable("away")

    metrics = Metrics(ManualClock(), sample_s=10)
    metrics.sampled("log", away)
    metrics.sampled("process", lambda: [Sample("tracklog_worker_running", 4)])
    read(metrics)
    found = read(metrics)
    assert ("tracklog_approvals_open",) not in found
    assert found["tracklog_worker_running",] == 4
    assert found["tracklog_sample_failures_total", "log"] >= 1


def test_names_say_what_is_counted_and_in_which_unit() -> None:
    for metric in CATALOGUE:
        assert metric.name.startswith("tracklog_")
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert bool(metric.bounds) == (metric.kind is Kind.HISTOGRAM), metric.name
        assert not metric.bounds or metric.name.endswith("_seconds")
    assert len({one.name for one in CATALOGUE}) == len(CATALOGUE)


def test_a_store_that_hangs_holds_up_nothing_else_and_is_asked_once() -> None:
    asked, goes_on = [], threading.Event()

    def hangs() -> Iterator[Sample]:
        asked.append(1)
        assert goes_on.wait(BOUND_S)
        yield Sample("tracklog_approvals_open", 7)

    # given a store that does not answer
    metrics = Metrics(SystemClock(), sample_s=0.001, wait_s=0.05)
    metrics.sampled("redis", hangs, kept=True)
    metrics.sampled("process", lambda: [Sample("tracklog_outage", 1, {"processor": "p"})])
    # when somebody looks, and looks again
    read(metrics)
    found = read(metrics)
    # then the process says what it knows itself
    assert found["tracklog_outage", "p"] == 1
    assert ("tracklog_approvals_open",) not in found
    assert found["tracklog_sample_failures_total", "redis"] == 2
    assert len(asked) == 1
    # and when the store goes on, it is read again
    goes_on.set()
    assert wait_until(lambda: read(metrics).get(("tracklog_approvals_open",)) == 7, BOUND_S)
