"""Commands over the cold tier alone, and over a log whose beginning was trimmed into it: they say what the log said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.cold import export_to
from tracklog.consumers.cli.app import app
from tracklog.consumers.importing import import_into
from tracklog.consumers.wiring import opened_log
from tracklog.infra.log.open import open_log
from tracklog.infra.log.ranges import read_range
from tracklog.infra.settings import Settings, load_settings
from tracklog.producers.data import shipped_runs
from tracklog.producers.importers.effects import AIRLINE
from tracklog.producers.importers.run import Run

RUNS = 6
Tracklog = Callable[..., Result]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a few of the recorded runs, exported."""
    home = tmp_path_factory.mktemp("cold")
    settings = settings_of(home)
    with opened_log(settings, make_topics=True) as log:
        runs = islice((run for run in shipped_runs() if isinstance(run, Run)), RUNS)
        import_into(log, settings, runs)
        export_to(log, settings)
    return home


@pytest.fixture
def trimmed(home: Path, tmp_path: Path) -> Path:
    """The same with nothing left in the log."""
    copy = tmp_path / "trimmed"
    shutil.copytree(home, copy)
    with opened_log(settings_of(copy)) as log:
        hot = log.hot  # type: ignore[attr-defined]
        for partition in range(hot.partition_count("tracklog.events")):
            hot.delete_records("tracklog.events", {partition: hot.bounds("tracklog.events", partition).end})
    return copy


def settings_of(home: Path) -> Settings:
    return load_settings(flags={"home": str(home)}, environ={}, cwd=home)


def tracklog(home: Path, *words: str, log: str | None = None, exit_code: int = 0, **environ: str) -> Result:
    line = [*words, *(("--log", log) if log is not None else ())]
    result = CliRunner(env={"TRACKLOG_HOME": str(home), **environ}).invoke(app, line)
    assert result.exit_code == exit_code, f"{line}: {result.output}\n{result.exception!r}"
    return result


def ids(home: Path) -> list[str]:
    with opened_log(settings_of(home)) as log:
        found = {
            (one.key or b"").decode()
            for partition in range(log.partition_count("tracklog.events"))
            for one in read_range(log, "tracklog.events", partition, 0, 1_000_000)
        }
    return sorted(found)


def said(result: Result) -> Any:
    found = json.loads(result.stdout)
    if isinstance(found, dict):
        for name in ("source", "seconds", "log"):
            found.pop(name, None)
        for run in found.get("runs", ()):
            run.pop("seconds")
    return found


COMMANDS: tuple[tuple[str, ...], ...] = (
    ("show", "{id}", "--from-log", "--json"),
    ("at", "{id}", "--turn", "2", "--json"),
    ("verify", "--all", "--json"),
    ("verify", "{id}", "--json"),
    ("replay", "trajectory", "{id}", "--json"),
    ("replay", "suite", "{ids}", "--json", "--jobs", "1"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_says_of_the_cold_tier_what_it_says_of_the_log(
    home: Path, trimmed: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    names = ids(home)
    (tmp_path / "ids").write_text("\n".join(names))
    line = [word.format(id=names[1], ids=str(tmp_path / "ids")) for word in words]

    of_log = said(tracklog(home, *line))

    assert len(names) == RUNS
    assert said(tracklog(home, *line, log="cold:")) == of_log
    assert said(tracklog(trimmed, *line)) == of_log


def test_events_replayed_from_the_cold_tier_are_those_of_the_log_hash_by_hash(home: Path, trimmed: Path) -> None:
    line = ("replay", "events", "--json")
    of_log = tracklog(home, *line).stdout

    assert of_log.count("\n") > 100
    assert tracklog(home, *line, log="cold:").stdout == of_log
    assert tracklog(trimmed, *line).stdout == of_log


def test_importing_again_into_a_trimmed_log_adds_nothing(trimmed: Path) -> None:
    settings = settings_of(trimmed)
    with opened_log(settings) as log:
        before = [log.bounds("tracklog.events", p) for p in range(log.partition_count("tracklog.events"))]
        runs = islice((run for run in shipped_runs() if isinstance(run, Run)), RUNS)

        report = import_into(log, settings, runs)

        assert (report.new, report.already) == (0, RUNS)
        assert [log.bounds("tracklog.events", p) for p in range(len(before))] == before
    tracklog(trimmed, "verify", "--all")


def test_without_its_cold_tier_a_trimmed_log_names_the_way_out(trimmed: Path, tmp_path: Path) -> None:
    name, nowhere = ids(trimmed)[0], str(tmp_path / "nowhere")

    for line in (
        ("show", name, "--from-log"),
        ("verify", name),
        ("replay", "trajectory", name),
        ("replay", "events", "--trajectory", name),
        ("replay", "events", "--trajectory", name, "--fold"),
        ("at", name, "--turn", "1"),
    ):
        found = tracklog(trimmed, *line, exit_code=3, TRACKLOG_COLD=nowhere)
        assert name in found.stderr
        assert "cold.url" in found.stderr


def test_without_its_cold_tier_a_trimmed_log_is_not_called_sound_or_read_as_if_it_were_whole(
    home: Path, trimmed: Path, tmp_path: Path
) -> None:
    nowhere = str(tmp_path / "nowhere")

    verified = tracklog(trimmed, "verify", "--all", TRACKLOG_COLD=nowhere)
    read = tracklog(trimmed, "replay", "events", TRACKLOG_COLD=nowhere)
    later = tracklog(trimmed, "replay", "events", "--from", "end", TRACKLOG_COLD=nowhere)

    assert "all sound" not in verified.stdout
    assert "its beginning was not looked at" in verified.stdout
    for one in (verified, read):
        assert "is kept from offset" in one.stderr
        assert "cold.url" in one.stderr
    assert "cold.url" not in later.stderr, "nothing of what was asked for is missing"
    for whole in (home, trimmed):
        assert "all sound" in tracklog(whole, "verify", "--all").stdout
        assert "cold.url" not in tracklog(whole, "replay", "events").stderr


def test_what_a_cold_log_cannot_do_is_refused_with_a_way_out(home: Path, tmp_path: Path) -> None:
    listed = tracklog(home, "list", log="cold:", exit_code=2)
    assert "tracklog query" in listed.stderr
    absent = tracklog(home, "verify", "--all", log=f"cold:{tmp_path / 'nothing'}", exit_code=3)
    assert "tracklog export" in absent.stderr
    sent = tracklog(home, "send", ids(home)[0], "hello", log="cold:", exit_code=2)
    assert "read only" in sent.stderr or "recorded elsewhere" in sent.stderr


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_the_120_airline_runs_replay_from_the_cold_tier_as_from_the_log(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    runs = [one for one in shipped_runs() if isinstance(one, Run) and one.dataset == AIRLINE]
    with opened_log(settings, make_topics=True) as log:
        import_into(log, settings, runs)
        export_to(log, settings, rows_max=5_000)
        cold = open_log(f"cold:{settings.cold.url}")
        for partition in range(log.partition_count("tracklog.events")):
            of_log, of_cold = (list(read_range(one, "tracklog.events", partition, 0, 10**9)) for one in (log, cold))
            assert of_log == of_cold
    (tmp_path / "ids").write_text("\n".join(one.trajectory_id for one in runs))
    line = ("replay", "suite", str(tmp_path / "ids"), "--json", "--jobs", "2")

    of_log, of_cold = said(tracklog(tmp_path, *line)), said(tracklog(tmp_path, *line, log="cold:"))

    assert of_log["clean"] == 120
    assert of_cold == of_log
