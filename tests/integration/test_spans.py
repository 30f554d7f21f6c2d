"""Spans out of the log at a real OTLP/HTTP receiver: once at least, under ids that never change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.collector import attributes, collecting
from tests.support.standing import Installation
from tracklog.infra.stack.process import wait_until
from tracklog.processors.spans import trace_of

WAIT_S = 40.0
SPANS = 6
"""Of one run of the clerk: three replies, two calls, and its own."""


@pytest.fixture
def here(redis_db: str, fresh_prefix: str, tmp_path: Path) -> Installation:
    return Installation(f"sqlite:{tmp_path / 'log.db'}", redis_db, fresh_prefix, tmp_path / "home")


def test_spans_survive_a_collector_that_is_away_and_a_process_that_is_killed(here: Installation) -> None:
    with collecting() as collector:
        settings = {"spans__endpoint": collector.url, "spans__headers.x-key": "secret", "spans__timeout_s": 1}
        # given a collector that is away, and a run that has ended
        collector.refusing = 503
        with here.standing("worker", "tests.support.standing_views:clerk"):
            here.run("submit", "clerk", "look", "--id", "trip-1")
            with here.standing("process", "spans", **settings) as process:
                assert wait_until(lambda: collector.refused > 1, WAIT_S)
                process.until("/readyz", 503)
                assert "did not take" in process.problems("/readyz")[0]
                assert process.get("/healthz")[0] == 200
                # when it is back, and the process is killed
                collector.refusing = 0
                assert wait_until(lambda: len(collector.by_id()) == SPANS, WAIT_S), collector.by_id()
                assert "secret" not in process.said.read_text()
                process.process.kill()
            here.run("submit", "clerk", "look", "--id", "trip-2")
            with here.standing("process", "spans", **settings):
                assert wait_until(lambda: len(collector.by_id()) == 2 * SPANS, WAIT_S)
        # then each run is one trace of its own id, and what came twice is the same span
        found = collector.by_id()
        traces = {bytes.fromhex(trace_of(name)[0]) for name in ("trip-1", "trip-2")}
        assert {span.trace_id for span in found.values()} == traces
        assert all(span == found[span.span_id] for span in collector.spans)
        (mail,) = [span for span in found.values() if span.name == "execute_tool mail" and span.trace_id == min(traces)]
        assert attributes(mail)["gen_ai.tool.call.id"]
        assert collector.headers[0]["x-key"] == "secret"
        assert collector.resources[0]["service.name"] == "tracklog"


def test_spans_need_an_address(here: Installation) -> None:
    with pytest.raises(AssertionError, match=r"spans\.endpoint is not set"):
        here.run("process", "spans", "--once")
