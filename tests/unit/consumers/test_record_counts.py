"""Counters of what happens in the log: there from the beginning, and of what is young."""

from __future__ import annotations

from tracklog.consumers.observing.records import RecordCounts
from tracklog.infra.clock import ManualClock
from tracklog.infra.log.port import Record
from tracklog.infra.metrics import Metrics
from tracklog.processors.quarantine import Poison

AGE_S = 3600.0


def poison(clock: ManualClock, age_s: float) -> Poison:
    timestamp_ms = clock.now_us() // 1000 - round(age_s * 1000)
    return Poison(Record("tracklog.events", 0, 7, timestamp_ms, b"nobody", b"no event", ()), "no envelope")


def test_a_fold_from_the_beginning_is_no_storm_of_records_that_are_no_events() -> None:
    # given counters that were never counted
    clock = ManualClock()
    metrics = Metrics(clock, sample_s=1.0)
    counts = RecordCounts(metrics, clock, AGE_S)
    assert b"tracklog_quarantined_records_total 0.0" in metrics.text()
    # when old ones are met again, and one that just came
    counts.quarantined([poison(clock, AGE_S + 1), poison(clock, AGE_S * 100), poison(clock, AGE_S - 1)])
    # then that one counts
    assert b"tracklog_quarantined_records_total 1.0" in metrics.text()
