"""A processor made from its page alone, plugged in, killed and rebuilt. Long: `python -m benchmarks plugged`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.plugged_in import PluggedIn

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]


def test_a_processor_made_from_the_page_ends_equal_to_a_plain_count(
    log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str, tmp_path: Path
) -> None:
    plugged = PluggedIn(log_urls("kafka"), redis_db, fresh_prefix, tmp_path)
    plugged.write_it()
    found = plugged.run(runs=40, kills=4, rebuilds=1)
    plugged.close()

    assert found.wrong == []
    assert found.verified
    assert found.equal
    assert all(found.equal)
