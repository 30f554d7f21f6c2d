"""Members of the processors' group that come, leave and are killed under load. Long: `python -m benchmarks churn`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processing_churn import ProcessingChurn

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(300)]

SECONDS = 18.0
EVERY_S = 3.0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_that_come_and_go_count_each_event_once(
    kafka_bootstrap: str, redis_db: str, fresh_prefix: str, tmp_path: Path, protocol: str
) -> None:
    churn = ProcessingChurn(f"kafka://{kafka_bootstrap}", redis_db, fresh_prefix, protocol, tmp_path, seed=1)
    churn.run(SECONDS, EVERY_S)
    churned = churn.judged()
    churn.close()

    assert churned.wrong == []
    assert churned.counted == churned.events > 1000
    assert churned.moves >= 4
