from __future__ import annotations

from collections.abc import Callable

from tests.support.projecting_kills import RUNS_A_ROUND, killed_and_healed


def test_a_projection_killed_at_random_moments_ends_equal_to_a_fresh_fold(
    log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str
) -> None:
    assert killed_and_healed(log_urls("sqlite"), redis_db, fresh_prefix, "hand", 3, seed=1) == 3 * RUNS_A_ROUND
