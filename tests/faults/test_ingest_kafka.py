"""Two processes of the API on Kafka, killed between what they wrote and their answers, again and again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.replicas import Front, check_once, record_run, replicas
from tests.support.writing import make_topics
from tracklog.infra.log.open import open_log
from tracklog.schemas.topics import Topics

pytestmark = pytest.mark.faults

RUNS = 4
TURNS = 8
KILL_EVERY = 5


@pytest.mark.timeout(300)
def test_each_event_is_in_once_whoever_dies(
    log_urls: Callable[[str], str], fresh_prefix: str, redis_db: str, tmp_path: Path
) -> None:
    url = log_urls("kafka")
    with closing(open_log(url)) as log:
        make_topics(log, Topics(fresh_prefix))
        with (
            replicas(url, fresh_prefix, redis_db, tmp_path) as served,
            closing(Front(served, kill_at=set(range(2, 1000, KILL_EVERY)))) as front,
        ):
            for number in range(RUNS):
                answers = record_run(front, f"run-{number}", TURNS)
                check_once(log, fresh_prefix, f"run-{number}", "ingest:local/ts", answers[-1]["next"])
            assert front.cut >= front.asked // KILL_EVERY
