"""The curated table: one row for each finished trajectory, however often and by whomever it is brought up to date."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from tests.support.cold import export_to
from tests.support.importing import chat_line, chat_record
from tracklog.consumers.cli.app import app
from tracklog.consumers.importing import import_into
from tracklog.consumers.training import curated
from tracklog.consumers.wiring import opened_log
from tracklog.infra.cold.curated import replace_rows
from tracklog.infra.settings import Settings, load_settings
from tracklog.producers.data import shipped_runs
from tracklog.producers.importers.chat import parse_chat_jsonl
from tracklog.producers.importers.run import Run
from tracklog.schemas.errors import ColdConflict

RUNS = 5
NESTED = ("labels", "models", "annotations", "faults", "origin", "parent")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = load_settings(flags={"home": str(tmp_path)}, environ={}, cwd=tmp_path)
    brought(settings, *islice((one for one in shipped_runs() if isinstance(one, Run)), RUNS))
    return settings


def brought(settings: Settings, *runs: Run) -> None:
    """Into the log, and from there into the cold tier."""
    with opened_log(settings, make_topics=True) as log:
        import_into(log, settings, runs)
        export_to(log, settings)


def one_more(name: str, **more: Any) -> Run:
    (run,) = parse_chat_jsonl([chat_line(chat_record(id=name, **more))], "more.jsonl")
    assert isinstance(run, Run)
    return run


def tracklog(settings: Settings, *words: str, exit_code: int = 0) -> Result:
    result = CliRunner(env={"TRACKLOG_HOME": settings.home}).invoke(app, words)
    assert result.exit_code == exit_code, f"{words}: {result.output}\n{result.exception!r}"
    return result


def kept(settings: Settings) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(
        tracklog(settings, "cold", "trajectories", "--to", settings.cold.url, "--json").stdout
    )
    return told


def rows(settings: Settings) -> list[dict[str, Any]]:
    found = DeltaTable(f"{settings.cold.url}/trajectories").to_pyarrow_table().to_pylist()
    for row in found:
        row.update({name: None if row[name] is None else json.loads(row[name]) for name in NESTED})
    return sorted(found, key=lambda row: str(row["trajectory_id"]))


def lines(settings: Settings) -> list[dict[str, Any]]:
    told = tracklog(settings, "cold", "trajectories").stdout.splitlines()
    return sorted((json.loads(line) for line in told), key=lambda row: str(row["trajectory_id"]))


def test_the_table_has_what_the_lines_have_and_again_is_nothing(settings: Settings) -> None:
    first = kept(settings)
    assert (first["changed"], first["rows"]) == (RUNS, RUNS)
    assert rows(settings) == lines(settings)
    version = DeltaTable(f"{settings.cold.url}/trajectories").version()

    again = kept(settings)

    assert (again["changed"], again["rows"]) == (0, 0)
    assert DeltaTable(f"{settings.cold.url}/trajectories").version() == version


def test_only_what_has_something_new_is_read_and_its_row_replaced(settings: Settings) -> None:
    kept(settings)
    tracklog(settings, "annotate", "airline-0-0", "--name", "reward", "--value", "0.25", "--as", "ada")
    brought(settings, one_more("new-1"))

    told = kept(settings)

    assert (told["changed"], told["rows"]) == (2, 2)
    found = rows(settings)
    assert found == lines(settings)
    assert len(found) == RUNS + 1
    assert {row["trajectory_id"]: row["reward"] for row in found}["airline-0-0"] == 0.25


def test_one_that_is_stopped_half_way_is_done_again_and_leaves_each_row_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curated, "ROWS_A_COMMIT", 2)
    real, commits = replace_rows, list[Any]()

    def stopped(*given: Any) -> None:
        commits.append(given)
        if len(commits) == 2:
            raise ColdConflict("somebody else has written")
        real(*given)

    monkeypatch.setattr(curated, "replace_rows", stopped)
    tracklog(settings, "cold", "trajectories", "--to", settings.cold.url, exit_code=3)
    assert 0 < len(rows(settings)) < RUNS

    assert kept(settings)["rows"] == RUNS
    assert rows(settings) == lines(settings)
    assert kept(settings)["changed"] == 0


def test_another_who_has_written_meanwhile_makes_it_fail_and_not_double(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = replace_rows

    def second(*given: Any) -> None:
        monkeypatch.setattr(curated, "replace_rows", real)
        kept(settings)
        real(*given)

    monkeypatch.setattr(curated, "replace_rows", second)
    refused = tracklog(settings, "cold", "trajectories", "--to", settings.cold.url, exit_code=3)
    assert "somebody else" in refused.output
    assert rows(settings) == lines(settings)


def test_a_policy_for_exports_holds_for_the_table_too(settings: Settings) -> None:
    leaky = one_more("leaky", labels={"email": "ada@example.org"})
    brought(settings, leaky)
    flags = ("--set", "redaction.export=readable", "--set", "redaction.fields=email")
    tracklog(settings, *flags, "cold", "trajectories", "--to", settings.cold.url)
    assert "ada@example.org" not in repr(rows(settings))


def test_all_trials_of_a_task_are_in_one_part_of_the_split(settings: Settings) -> None:
    told = tracklog(settings, "cold", "training", "--valid", "0.3", "--test", "0.3").stdout.splitlines()
    seen = [json.loads(line)["provenance"] for line in told]
    assert {one["trajectory_id"] for one in seen} > {"airline-0-0", "airline-0-1"}
    tasks = {one["trajectory_id"]: one["task"] for one in seen}
    assert tasks["airline-0-0"] == tasks["airline-0-1"] == "airline/0"
    parts: dict[str, set[str]] = {}
    for one in seen:
        parts.setdefault(one["task"], set()).add(one["split"])
    assert all(len(found) == 1 for found in parts.values())


def test_a_table_is_all_of_them_and_of_one_log(settings: Settings, tmp_path: Path) -> None:
    tracklog(settings, "cold", "trajectories", "--to", settings.cold.url, "--where", "turns > 2", exit_code=2)
    kept(settings)
    other = load_settings(flags={"home": str(tmp_path / "other")}, environ={}, cwd=tmp_path)
    brought(other, one_more("new-1"))
    refused = tracklog(other, "cold", "trajectories", "--to", settings.cold.url, exit_code=3)
    assert "another" in refused.output
