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
        line = ("projections", "verify", name, "--json", "--accept-gap")
        verified = json.loads(tracklog(*line, exit_code=int(differs)).stdout)
        assert (verified["difference"] is not None) is differs, name
        assert verified["partial"]["count"] >= (RUNS if not differs else 1), name


def test_without_the_beginning_nothing_is_built_anew_or_found_equal_unless_that_is_accepted(
    tracklog: Tracklog, tmp_path: Path, fresh_prefix: str
) -> None:
    # given trajectories that were folded before the log was trimmed
    tracklog("process", "trajectories", "--once")
    before = listed(tracklog)["trajectories"]
    trim_into_first_runs(tmp_path, fresh_prefix)
    # when they are to be built anew, or compared with what is left
    for what in ("rebuild", "verify"):
        refused = tracklog("projections", what, "trajectories", exit_code=3)
        # then it is said what is missing, and how to have it
        assert "is kept from offset" in refused.stderr, what
        assert "cold.url" in refused.stderr, what
    # and nothing has changed
    assert {**listed(tracklog)["trajectories"], "partial": None} == {**before, "partial": None}
    # and who wants what is left says so
    built = json.loads(tracklog("projections", "rebuild", "trajectories", "--accept-gap", "--json").stdout)
    assert (built["build"], built["equal"]) == (1, False)
    compared = tracklog("projections", "verify", "trajectories", "--accept-gap")
    assert "as what is kept of the log says" in compared.stdout


def test_folding_a_log_without_its_beginning_says_from_where(
    tracklog: Tracklog, tmp_path: Path, fresh_prefix: str
) -> None:
    trim_into_first_runs(tmp_path, fresh_prefix)
    told = tracklog("process", "trajectories", "--once").stderr
    assert "is kept from offset" in told
    assert "what was before that is missing" in told
    assert "cold.url" in told


def test_in_a_whole_log_nothing_is_partial(tracklog: Tracklog) -> None:
    tracklog("process", "--once")
    assert {name: one["partial"] for name, one in listed(tracklog).items() if one["partial"]["count"]} == {}  # type: ignore[index]
    assert "trimmed" not in tracklog("projections", "list").stderr
