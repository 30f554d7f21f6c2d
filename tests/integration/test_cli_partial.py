"""Where the beginning of the log was trimmed before it was folded: which trajectories nothing is known of."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.test_cli_projections import RUNS, Tracklog, listed, tracklog
from tracklog.infra.log.open import open_log
from tracklog.infra.settings import load_settings

__all__ = ["tracklog"]


def trim_into_first_runs(tmp_path: Path, prefix: str) -> set[str]:
    """Trims the first event of every run; gives their ids."""
    topic = load_settings(flags={"prefix": prefix}, environ={}, cwd=tmp_path).topic_names.events
    log = open_log(f"sqlite:{tmp_path / 'data' / 'log.db'}")
    firsts = dict[bytes, tuple[int, int]]()
    ends = {p: log.bounds(topic, p).end for p in range(log.partition_count(topic))}
    reader = log.reader(topic, dict.fromkeys(ends, 0))
    while any(reader.position(p) < end for p, end in ends.items()):
        for record in reader.poll(1000, 0.1):
            assert record.key is not None
            firsts.setdefault(record.key, (record.partition, record.offset))
    reader.close()
    before = dict[int, int]()
    for partition, offset in firsts.values():
        before[partition] = max(before.get(partition, 0), offset + 1)
    log.delete_records(topic, before)
    log.close()
    return {key.decode() for key in firsts}


def test_those_whose_beginning_was_trimmed_are_named_and_counted(
    tracklog: Tracklog, tmp_path: Path, fresh_prefix: str
) -> None:
    # given a log that was folded before it was trimmed: nothing is missing
    tracklog("process", "spend", "--once")
    runs = trim_into_first_runs(tmp_path, fresh_prefix)
    assert listed(tracklog)["spend"]["partial"] == {"count": 0, "trajectories": []}
    # when it is folded by others after that
    tracklog("process", "trajectories", "pace", "--once")
    # then each says of which it has nothing
    for name in ("trajectories", "pace"):
        partial = listed(tracklog)[name]["partial"]
        assert partial == {"count": RUNS, "trajectories": sorted(runs)}, name
    told = tracklog("projections", "list")
    assert f"pace: nothing of {RUNS} trajectories whose beginning was trimmed: {min(runs)}" in told.stderr
    shown = json.loads(tracklog("projections", "read", "pace", "moving", "--json").stdout)
    assert (shown["value"], shown["partial"]["count"]) == ([], RUNS)
    # and comparing says it too: also of the one that has them, which what is folded afresh cannot
    for name, differs in (("pace", False), ("spend", True)):
        verified = json.loads(tracklog("projections", "verify", name, "--json", exit_code=int(differs)).stdout)
        assert (verified["difference"] is not None) is differs, name
        assert verified["partial"]["count"] >= (RUNS if not differs else 1), name


def test_in_a_whole_log_nothing_is_partial(tracklog: Tracklog) -> None:
    tracklog("process", "--once")
    assert {name: one["partial"] for name, one in listed(tracklog).items() if one["partial"]["count"]} == {}  # type: ignore[index]
    assert "trimmed" not in tracklog("projections", "list").stderr
