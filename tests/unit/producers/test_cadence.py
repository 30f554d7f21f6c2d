"""When a checkpoint is due."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracklog.producers.cadence import DAY_S, Cadence, interval_s

PAUSES = st.floats(min_value=1e-4, max_value=60.0)
RATES = st.floats(min_value=1e-2, max_value=1000.0)


def lost_share(interval: float, pause: float, between: float) -> float:
    """Daly's model: time to finish, over the time of undisturbed work without checkpoints."""
    return between * math.expm1((interval + pause) / between) / interval


@given(pause=PAUSES, rate=RATES)
def test_no_other_interval_loses_noticeably_less(pause: float, rate: float) -> None:
    """Given any pause and rate, when intervals around are tried, then none is better by more than a thousandth."""
    chosen, between = interval_s(pause, rate), DAY_S / rate
    best = min(lost_share(chosen * factor, pause, between) for factor in (0.25, 0.5, 0.8, 0.95, 1.05, 1.25, 2.0, 4.0))
    assert lost_share(chosen, pause, between) <= best * 1.001


@given(pause=PAUSES, rate=RATES)
def test_a_longer_pause_or_fewer_failures_make_the_interval_longer(pause: float, rate: float) -> None:
    assert interval_s(pause * 1.5, rate) > interval_s(pause, rate) > interval_s(pause, rate * 1.5)


def test_the_interval_by_hand() -> None:
    """50 ms and one failure a day: Young says sqrt(2 * 0.05 * 86400) = 92.95 s."""
    assert interval_s(0.05, 1.0) == pytest.approx(92.95, abs=0.1)
    assert interval_s(200_000.0, 1.0) == DAY_S
    assert interval_s(0.05, 0.0) == math.inf


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_a_rate_or_a_pause_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="0"):
        interval_s(wrong, 1.0)
    with pytest.raises(ValueError, match="failures_a_day"):
        Cadence(failures_a_day=wrong)


def test_it_is_due_after_the_interval_or_after_many_turns_and_never_without_one() -> None:
    cadence = Cadence()
    assert not cadence.due(elapsed_s=1e9, turns=0)
    assert not cadence.due(elapsed_s=92.0, turns=49)
    assert cadence.due(elapsed_s=93.1, turns=1)
    assert cadence.due(elapsed_s=0.0, turns=50)


def test_the_pause_follows_what_is_measured() -> None:
    """Given pauses of 1 s and then of 3 s, when they come in, then the estimate goes from the one to the other."""
    cadence = Cadence()
    cadence.took(1.0)
    assert cadence.pause_s == 1.0
    estimates = []
    for _ in range(10):
        cadence.took(3.0)
        estimates.append(cadence.pause_s)
    assert estimates == sorted(estimates)
    assert 2.8 < estimates[-1] < 3.0
