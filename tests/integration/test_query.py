"""SQL over the cold tier: the questions of the docs, what is refused, and every form of an answer."""

from __future__ import annotations

import json
import re
import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from tests.support.chains import append_all, run_of
from tests.support.cold import export_to
from tracklog.consumers.cli.app import app
from tracklog.consumers.importing import import_into
from tracklog.consumers.querying import VIEWS, ask
from tracklog.consumers.wiring import opened_log
from tracklog.infra.log.ranges import read_range
from tracklog.infra.settings import Settings, load_settings
from tracklog.producers.data import shipped_runs
from tracklog.producers.importers.run import Run
from tracklog.schemas import events as ev
from tracklog.schemas.codec import decode_event
from tracklog.schemas.fold import fold
from tracklog.schemas.head import Verdict
from tracklog.schemas.state import State
from tracklog.schemas.values import Body, Choice, Ruling

TOPIC = "tracklog.events"
PAGE = (Path(__file__).parents[2] / "docs" / "query.md").read_text()
QUESTIONS = re.findall(r"\n([^\n]+\?)\n\n```sql\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Recorded runs, and one that was held, drifted and diverged, with records that were not accepted."""
    home = tmp_path_factory.mktemp("query")
    settings = load_settings(flags={"home": str(home)}, environ={}, cwd=home)
    chain = run_of("held", turns=2, ending=None)
    request = chain.add(
        ev.ApprovalRequested(call_id="call-x", argument_hash=bytes(32), may_approve=("ada",), reason="dear")
    )
    chain.add(ev.ApprovalResolved(call_id="call-x", request_hash=request.hash, approver="ada", choice=Choice.APPROVE))
    chain.add(ev.Authorized(call_id="call-y", ruling=Ruling.DENY, policy_version="p1", rule="no-refunds"))
    chain.add(ev.DriftCrossed(old_model="test-model", new_model="other-model"))
    chain.add(ev.ModelReplied(reply=Body.of("more"), model_served="other-model", cost_micro_usd=500_000))
    stale = chain.records[3]
    chain.add(ev.OwnershipReleased(owner="here", nonce=bytes(16), reason="diverged: other words"))
    with opened_log(settings, make_topics=True) as log:
        import_into(log, settings, islice((one for one in shipped_runs() if isinstance(one, Run)), 8))
        append_all(log, TOPIC, [*chain.records, stale, *chain.records[:4]])
        export_to(log, settings, rows_max=150)
    return settings


def asked(settings: Settings, sql: str) -> list[dict[str, Any]]:
    answer = ask(settings.cold.url, {}, sql, limit_s=60)
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows()]


def query(settings: Settings, *words: str, exit_code: int = 0) -> Result:
    result = CliRunner(env={"TRACKLOG_HOME": settings.home}).invoke(app, ["query", *words])
    assert result.exit_code == exit_code, f"{words}: {result.output}\n{result.exception!r}"
    return result


@pytest.mark.parametrize(("question", "sql"), QUESTIONS, ids=[question for question, _ in QUESTIONS])
def test_a_question_of_the_docs_is_answered(settings: Settings, question: str, sql: str) -> None:
    assert len(QUESTIONS) == 10
    rows = asked(settings, sql)
    if "in circles" in question:
        assert all(row["times"] >= 3 for row in rows)
        return
    assert rows, question
    held: dict[str, dict[str, object]] = {
        "approvals wait": {"approver": "ada", "choice": "approve", "requests": 1},
        "went on with another": {"trajectory_id": "held", "old_model": "test-model", "new_model": "other-model"},
        "let go of": {"trajectory_id": "held", "reason": "diverged: other words"},
        "forbid or hold": {"policy": "p1", "rule": "no-refunds", "ruling": "deny", "calls": 1},
        "spend": {"model": "other-model", "replies": 1, "cost_usd": 0.5},
    }
    for words, expected in held.items():
        if words in question:
            assert any(expected.items() <= row.items() for row in rows), rows


def test_what_counts_in_sql_is_what_the_fold_accepts(settings: Settings) -> None:
    accepted: set[tuple[str, int, int]] = set()
    with opened_log(settings) as log:
        for partition in range(log.partition_count(TOPIC)):
            states: dict[bytes, State] = {}
            for record in read_range(log, TOPIC, partition, 0, 1_000_000):
                event = decode_event(record.key, record.value, record.headers)
                name = event.envelope.trajectory_id
                states[name.encode()], judged = fold(states.get(name.encode(), State(name)), event)
                if judged.verdict is Verdict.ACCEPTED:
                    accepted.add((name, event.envelope.seq, record.offset))

    rows = asked(settings, 'SELECT trajectory_id, seq, "offset" FROM accepted')

    assert {(row["trajectory_id"], row["seq"], row["offset"]) for row in rows} == accepted
    assert asked(settings, "SELECT count(*) AS n FROM events")[0]["n"] > len(accepted)


@pytest.mark.parametrize(
    "sql",
    [
        "COPY events TO '/tmp/tracklog-query.csv'",
        "CREATE TABLE mine AS SELECT 1",
        "INSERT INTO events SELECT * FROM events",
        "DELETE FROM events",
        "ATTACH '/tmp/tracklog-query.db'",
        "INSTALL httpfs",
        "SET memory_limit = '8GB'",
        "PRAGMA database_list",
        "SELECT 1; SELECT 2",
        "SELECT * FROM read_csv('/etc/hosts')",
        "SELECT * FROM read_text('/etc/hosts')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM 'file.parquet'",
        "SELECT * FROM read_parquet('s3://bucket/key.parquet')",
        "SELECT nothing FROM events",
        "SELEC 1",
        "",
    ],
)
def test_what_is_no_question_about_the_table_is_refused(settings: Settings, sql: str) -> None:
    found = query(settings, sql, exit_code=2)

    assert found.stderr.startswith("error: ")
    assert "hint: " in found.stderr
    assert not Path("/tmp/tracklog-query.csv").exists()


def test_a_question_that_takes_too_long_ends(settings: Settings) -> None:
    endless = "SELECT count(*) FROM range(100000000) a, range(100000000) b"
    assert "no answer within" in query(settings, endless, "--limit-s", "0.3", exit_code=2).stderr


def test_an_answer_comes_in_every_form(settings: Settings, tmp_path: Path) -> None:
    sql = "SELECT event_type, count(*) AS n FROM events GROUP BY ALL ORDER BY event_type"
    rows = json.loads(query(settings, sql, "--json").stdout)
    assert rows[0].keys() == {"event_type", "n"}
    assert query(settings, sql).stdout.splitlines()[0].split() == ["event_type", "n"]
    csv = query(settings, sql, "--format", "csv").stdout.splitlines()
    assert len(csv) == len(rows) + 1
    query(settings, sql, "--format", "parquet", "--output", str(tmp_path / "out.parquet"))
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == rows
    query(settings, sql, "--json", "--output", str(tmp_path / "out.json"))
    assert json.loads((tmp_path / "out.json").read_text()) == rows
    cut = query(settings, sql, "--max", "2")
    assert len(cut.stdout.splitlines()) == 3
    assert "more rows than 2" in cut.stderr
    query(settings, sql, "--format", "parquet", exit_code=2)


def test_columns_that_a_form_cannot_hold_are_written_otherwise_or_named(settings: Settings, tmp_path: Path) -> None:
    csv = query(settings, "SELECT * FROM events LIMIT 3", "--format", "csv").stdout.splitlines()
    row = asked(settings, "SELECT payload FROM events LIMIT 3")[0]
    assert (len(csv), "payload" in csv[0], row["payload"].hex() in "".join(csv)) == (4, True, True)
    target = ("--output", str(tmp_path / "out"))
    for form, sql in (("parquet", "SELECT INTERVAL 1 DAY AS long"), ("csv", "SELECT [1, 2] AS long")):
        refused = query(settings, sql, "--format", form, *target, exit_code=2)
        assert "long (" in refused.stderr
        assert "VARCHAR" in refused.stderr
    twice = query(settings, "SELECT 1 AS a, 2 AS a, 3 AS a_2, 4 AS a", "--json").stdout
    assert json.loads(twice) == [{"a": 1, "a_3": 2, "a_2": 3, "a_4": 4}]


def test_a_file_that_is_not_there_is_damage_and_no_wrong_question(settings: Settings, tmp_path: Path) -> None:
    shutil.copytree(settings.home, tmp_path / "home")
    there = load_settings(flags={"home": str(tmp_path / "home")}, environ={}, cwd=tmp_path)
    gone = next(Path(there.cold.url, "events").rglob("*.parquet"))
    gone.unlink()
    found = query(there, "SELECT sum(length(body)) FROM events", exit_code=3)
    assert gone.name in found.stderr


def test_the_page_names_every_table(settings: Settings) -> None:
    for name in ("events", "undecodable", *VIEWS):
        assert f"| `{name}` |" in PAGE
        assert asked(settings, f"SELECT * FROM {name} LIMIT 1") is not None


def test_without_a_table_the_way_out_is_named(tmp_path: Path) -> None:
    empty = load_settings(flags={"home": str(tmp_path)}, environ={}, cwd=tmp_path)
    assert "tracklog export" in query(empty, "SELECT 1", exit_code=3).stderr
