"""Exports under a policy: what a data lake sees, what still verifies, and what the log alone keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from tests.support.cold import export_to
from tests.support.importing import chat_line, chat_record
from tracklog.consumers.cli.app import app
from tracklog.consumers.export.redacting import same_but_for_marks
from tracklog.consumers.importing import import_into
from tracklog.consumers.wiring import opened_log
from tracklog.infra.settings import Settings, load_settings
from tracklog.producers.importers.chat import parse_chat_jsonl

KEY = "sk-abcdefghijklmnopqrstuvwx"
EMAIL = "ada@example.org"
LONG = f"{'long text ' * 20_000} {KEY}"


def record(name: str, said: str) -> bytes:
    made = chat_record(id=name)
    arguments = json.dumps({"email": EMAIL, "key": said})
    call = {"id": f"c-{name}", "type": "function", "function": {"name": "find", "arguments": arguments}}
    made["messages"] += [
        {"role": "assistant", "content": said, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c-{name}", "content": LONG},
        {"role": "assistant", "content": "done"},
    ]
    return chat_line(made)


def exported(home: Path, how: str) -> Settings:
    """Two runs, one of which says nothing secret, in the log as they are and in the cold tier by the policy."""
    flags = {"home": str(home), "redaction.export": how, "redaction.fields": "email"}
    settings = load_settings(flags=flags, environ={}, cwd=home)
    clean = chat_line(chat_record(id="clean"))
    with opened_log(settings, make_topics=True) as log:
        import_into(log, settings, parse_chat_jsonl([record("leaky", KEY), clean], "runs.jsonl"))
        export_to(log, settings)
    return settings


def rows(settings: Settings) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(f"{settings.cold.url}/events").to_pyarrow_table().to_pylist()
    return found


def tracklog(settings: Settings, *words: str) -> Result:
    flags = ["--set", f"redaction.export={settings.redaction.export}", "--set", "redaction.fields=email"]
    return CliRunner(env={"TRACKLOG_HOME": settings.home}).invoke(app, [*flags, *words])


def test_readable_takes_secrets_out_of_what_people_see_and_all_of_it_verifies_and_replays(tmp_path: Path) -> None:
    settings = exported(tmp_path, "readable")

    bodies = "\n".join(row["body"] for row in rows(settings))
    assert KEY not in bodies
    assert EMAIL not in bodies
    assert "[field email redacted]" in bodies
    assert any(KEY.encode() in row["payload"] for row in rows(settings)), "as it was recorded"
    for words in ("cold verify", "--log cold: verify --all", "--log cold: show leaky", "retention apply --keep-days 0"):
        result = tracklog(settings, *words.split())
        assert result.exit_code == 0, f"{words}: {result.output}"
    training = tracklog(settings, "cold", "training")
    assert "leaky" in training.stdout
    assert KEY not in training.stdout
    assert EMAIL not in training.stdout


def test_everything_leaves_no_secret_in_the_tier_and_verify_says_what_it_cannot_see(tmp_path: Path) -> None:
    settings = exported(tmp_path, "everything")

    parquet = rows(settings)
    kept = "\n".join(map(repr, parquet))
    blobs = [path for path in Path(settings.cold.url, "blobs").rglob("*") if path.is_file()]
    assert KEY not in kept
    assert EMAIL not in kept
    assert blobs == [], "a blob is whole or not there"
    left_out = [row for row in parquet if not row["payload"]]
    assert {row["trajectory_id"] for row in left_out} == {"leaky"}
    assert 0 < len(left_out) < len([row for row in parquet if row["trajectory_id"] == "leaky"])

    result = tracklog(settings, "--json", "cold", "verify", "--no-blobs")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["sound"], found["redacted"]) == (0, True, {"leaky": len(left_out)})
    said = tracklog(settings, "cold", "verify", "--no-blobs").output
    assert f"leaky ({len(left_out)})" in " ".join(said.split())
    assert tracklog(settings, "--log", "cold:", "show", "clean").exit_code == 0
    refused = tracklog(settings, "--log", "cold:", "show", "leaky")
    assert refused.exit_code != 0
    assert "without its payload" in refused.output
    trimmed = tracklog(settings, "retention", "apply", "--keep-days", "0", "--yes")
    assert trimmed.exit_code != 0
    assert tracklog(settings, "verify", "leaky").exit_code == 0, "the log has it"


@pytest.mark.parametrize("how", ["readable", "everything"])
def test_fields_go_from_an_output_of_which_only_the_beginning_is_in_the_event(tmp_path: Path, how: str) -> None:
    made = chat_record(id="long")
    call = {"id": "c-long", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    found = [{"id": n, "email": EMAIL, "customer": {"phone": "030-12345"}} for n in range(6_000)]
    made["messages"] += [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c-long", "content": json.dumps(found)},
        {"role": "assistant", "content": "done"},
    ]
    settings = load_settings(
        flags={"home": str(tmp_path), "redaction.export": how, "redaction.fields": "email,customer.phone"},
        environ={},
        cwd=tmp_path,
    )
    with opened_log(settings, make_topics=True) as log:
        import_into(log, settings, parse_chat_jsonl([chat_line(made)], "runs.jsonl"))
        export_to(log, settings)

    bodies = [row["body"] for row in rows(settings)]
    assert any('"stored":true' in body and "[field phone redacted]" in body for body in bodies)
    assert not any(EMAIL in body or "030-12345" in body for body in bodies)
    verified = tracklog(settings, "--json", "cold", "verify", *(["--no-blobs"] if how == "everything" else []))
    assert (verified.exit_code, json.loads(verified.stdout)["sound"]) == (0, True)


def test_an_edit_of_a_redacted_body_is_still_found(tmp_path: Path) -> None:
    settings = exported(tmp_path, "readable")
    table = DeltaTable(f"{settings.cold.url}/events")
    table.update({"body": "replace(body, 'done', 'undone')"}, predicate="event_type = 'ModelReplied'")

    result = tracklog(settings, "--json", "cold", "verify")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["sound"]) == (1, False)
    assert any("column body" in fault["detail"] for fault in found["faults"])


@pytest.mark.parametrize(
    ("shown", "exported", "same"),
    [
        ({"a": "x"}, {"a": "x"}, True),
        ({"a": "x [API key redacted] y"}, {"a": f"x {KEY} y"}, True),
        ({"a": "x [API key redacted] z"}, {"a": f"x {KEY} y"}, False),
        ({"a": "w [API key redacted] y"}, {"a": f"x {KEY} y"}, False),
        ({"a": "[API key redacted]", "b": 1}, {"a": KEY, "b": 2}, False),
        ({"a": "[field a redacted]"}, {"a": {"deep": 1}}, True),
        ({"a": '{"k": "[API key redacted]", "n": 1}'}, {"a": f'{{"k":"{KEY}","n":1}}'}, True),
        ({"a": '{"k": "[API key redacted]", "n": 2}'}, {"a": f'{{"k":"{KEY}","n":1}}'}, False),
        ({"a": ["[API key redacted]"]}, {"a": [KEY, KEY]}, False),
        ({"[API key redacted]": 1}, {KEY: 1}, True),
        ({"a": "[x redacted] and [x redacted]"}, {"a": "one and two"}, True),
        ({"a": "[x redacted][x redacted]"}, {"a": "o"}, False),
    ],
)
def test_a_mark_stands_for_what_was_taken_out_and_for_nothing_else(shown: Any, exported: Any, same: bool) -> None:
    assert same_but_for_marks(json.dumps(shown), json.dumps(exported)) is same
