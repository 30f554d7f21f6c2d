"""A gap that nobody accepted, as probes and metrics of a running exporter show it."""

from __future__ import annotations

from pathlib import Path

from tests.support.standing import Installation
from tracklog.infra.log.open import open_log
from tracklog.infra.stack.process import wait_until
from tracklog.schemas.topics import Topics

BOUND_S = 60.0
GAP = "tracklog_export_gap_offsets"


def test_an_exporter_that_met_a_gap_can_be_scraped_until_somebody_accepts_it(tmp_path: Path) -> None:
    # given events that were deleted before they were exported
    log = f"sqlite:{tmp_path / 'log.db'}"
    settings = {"cold.url": tmp_path / "cold", "cold.age_s": 0.1, "topics.partitions": 1}
    here = Installation(log, "redis://127.0.0.1:1", "shown", tmp_path / "home", settings)
    here.folder.mkdir()
    here.run("selftest", "--no-views")
    here.run("export", "--once")
    here.run("selftest", "--no-views")
    opened, topic = open_log(log), Topics("shown").events
    opened.delete_records(topic, opened.ends(topic, range(1)))
    opened.close()

    # when an exporter meets that
    with here.standing("export") as one:
        # then it lives, says for what it waits, and shows how much is missing
        assert wait_until(lambda: sum(value for key, value in one.series().items() if key[0] == GAP) > 0, BOUND_S)
        one.until("/readyz", 503)
        assert "--accept-gap" in str(one.problems("/readyz"))
        assert one.get("/healthz")[0] == 200
        assert one.process.poll() is None

    # and one that was told to go on has none
    with here.standing("export", "--accept-gap") as one:
        one.until("/readyz", 200)
        assert wait_until(lambda: {value for key, value in one.series().items() if key[0] == GAP} == {0.0}, BOUND_S)
