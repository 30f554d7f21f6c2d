"""Clocks and entropy: the virtual ones replay, the real ones are real."""

from __future__ import annotations

import time

import pytest

from tracklog.infra.clock import NONCE_BYTES, Clock, Entropy, ManualClock, SeededEntropy, SystemClock, SystemEntropy


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()])
def test_monotonic_time_never_goes_back(clock: Clock) -> None:
    readings = [clock.monotonic_s() for _ in range(100)]

    assert readings == sorted(readings)


def test_the_system_clock_tells_microseconds_since_1970() -> None:
    assert abs(SystemClock().now_us() / 1_000_000 - time.time()) < 5


def test_a_manual_clock_stands_still_until_told() -> None:
    clock = ManualClock(now_us=1_000_000)
    before = (clock.now_us(), clock.monotonic_s())

    assert (clock.now_us(), clock.monotonic_s()) == before
    clock.advance(1.5)
    assert (clock.now_us(), clock.monotonic_s()) == (2_500_000, 1.5)


def test_small_steps_add_up_exactly() -> None:
    clock = ManualClock(now_us=0)
    for _ in range(1000):
        clock.advance(0.1)

    assert (clock.now_us(), clock.monotonic_s()) == (100_000_000, 100.0)


def test_a_wall_clock_may_jump_and_monotonic_time_does_not_notice() -> None:
    clock = ManualClock(now_us=10_000_000)
    clock.jump_wall(-3)

    assert (clock.now_us(), clock.monotonic_s()) == (7_000_000, 0.0)


def test_time_cannot_be_moved_back() -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        ManualClock().advance(-0.001)


@pytest.mark.parametrize("entropy", [SystemEntropy(), SeededEntropy(1)])
def test_a_nonce_has_its_size_and_is_never_given_twice(entropy: Entropy) -> None:
    nonces = [entropy.nonce() for _ in range(1000)]

    assert {len(nonce) for nonce in nonces} == {NONCE_BYTES}
    assert len(set(nonces)) == 1000


def test_one_seed_gives_one_row_of_nonces() -> None:
    first, again, other = SeededEntropy(7), SeededEntropy(7), SeededEntropy(8)
    row = [first.nonce() for _ in range(10)]

    assert row == [again.nonce() for _ in range(10)]
    assert row != [other.nonce() for _ in range(10)]
