"""A projection process that is killed: where it was between reading, writing and remembering does not matter."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.projecting_kills import RUNS_A_ROUND, killed_and_healed

ROUNDS = 10

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]


@pytest.mark.parametrize("seed", [2, 3])
def test_a_projection_killed_ten_times_ends_equal_to_a_fresh_fold(
    log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str, seed: int
) -> None:
    found = killed_and_healed(log_urls("sqlite"), redis_db, fresh_prefix, "hand", ROUNDS, seed)

    assert found == ROUNDS * RUNS_A_ROUND


def test_a_group_member_killed_again_and_again_leaves_its_partitions_to_the_next(
    log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str
) -> None:
    found = killed_and_healed(log_urls("sqlite"), redis_db, fresh_prefix, "group", 4, seed=4)

    assert found == 4 * RUNS_A_ROUND


def test_a_projection_of_a_kafka_log_killed_ten_times_ends_equal_to_a_fresh_fold(
    log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str
) -> None:
    found = killed_and_healed(log_urls("kafka"), redis_db, fresh_prefix, "hand", ROUNDS, seed=5)

    assert found == ROUNDS * RUNS_A_ROUND
