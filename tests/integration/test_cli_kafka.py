"""The same commands on Apache Kafka and a Redis that others share: nothing is created unasked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.chains import Made, append_all, run_of
from tests.support.importing import chat_line, chat_record
from tests.support.tampering import flipped
from tracklog.consumers.cli.app import app
from tracklog.consumers.cli.demo import tour
from tracklog.consumers.cli.run import Run
from tracklog.consumers.demo import stack_flags
from tracklog.infra.log.open import open_log
from tracklog.infra.settings import Settings
from tracklog.infra.settings_sections import TopicSettings
from tracklog.schemas.events import OwnershipReleased

ONE_BROKER = ("--set", "topics.replication_factor=1", "--set", "topics.min_insync_replicas=1")


@pytest.fixture
def arguments(kafka_bootstrap: str, redis_url: str, fresh_prefix: str, tmp_path: Path) -> tuple[str, ...]:
    place = ("--log", f"kafka://{kafka_bootstrap}", "--redis", redis_url, "--prefix", fresh_prefix)
    return (*place, "--set", f"home={tmp_path}", *ONE_BROKER)


def run(arguments: tuple[str, ...], *more: object, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*arguments, *map(str, more)])
    assert result.exit_code == exit_code, result.output
    return result


def test_topics_are_asked_for_and_then_everything_works(arguments: tuple[str, ...], fresh_prefix: str) -> None:
    missing = run(arguments, "verify", "--all", exit_code=3)
    assert "tracklog topics apply" in missing.stderr

    assert run(arguments, "topics", "apply").stdout.count(f"created {fresh_prefix}.") == 5
    run(arguments, "topics", "verify")
    wanted = json.loads(
        run(arguments, "--set", "topics.partitions=5", "topics", "verify", "--json", exit_code=1).stdout
    )
    assert {(one["setting"], one["wanted"], one["found"]) for one in wanted["findings"]} == {("partitions", "5", "12")}

    url = arguments[1]
    log = open_log(url)
    sound, bad = run_of("sound"), run_of("bad")
    for chain in (sound, bad):
        chain.add(OwnershipReleased(owner="owner", nonce=bytes(16)))
    junk = Made(b"sound", b"hello", (), b"")
    append_all(log, f"{fresh_prefix}.events", [*sound.records, junk, *flipped(bad.records, 6)])
    log.close()

    found = json.loads(run(arguments, "verify", "--all", "--json", exit_code=1).stdout)
    assert [(one["trajectory_id"], one["faults"][0]["seq"]) for one in found["reports"]] == [("bad", 6)]
    run(arguments, "process", "--once")
    rows = json.loads(run(arguments, "list", "--json").stdout)["trajectories"]
    assert {row["trajectory_id"]: row["status"] for row in rows} == {"sound": "completed", "bad": "faulty"}
    assert len(json.loads(run(arguments, "quarantine", "list", "--json").stdout)["records"]) == 1
    assert len(run(arguments, "replay", "events", "--trajectory", "sound", "--json").stdout.splitlines()) == 18
    run(arguments, "tools", "pause", "refund", "--as", "ada")
    assert [one["tool"] for one in json.loads(run(arguments, "tools", "list", "--json").stdout)["paused"]] == ["refund"]
    assert json.loads(run(arguments, "refused", "--json").stdout)["refused"] == []
    assert json.loads(run(arguments, "doctor", "--json").stdout)["ok"]


def test_the_tour_of_the_demo_on_kafka_can_be_taken_twice(
    kafka_bootstrap: str, redis_url: str, fresh_prefix: str, tmp_path: Path
) -> None:
    flags = {**stack_flags(f"kafka://{kafka_bootstrap}", redis_url, tmp_path), "prefix": fresh_prefix}
    for new in (125, 0):
        told = tour(Run(flags, as_json=True, environ={}))

        assert told["imported"]["new"] == new
        assert told["verified"]["faulty"] == 0
        assert told["found"]["seq"] == told["flipped"]["seq"]


@pytest.mark.parametrize("setting", [("cleanup.policy", "compact"), ("retention.ms", "60000")])
def test_nothing_is_written_to_a_topic_that_would_lose_it(
    setting: tuple[str, str], arguments: tuple[str, ...], fresh_prefix: str, tmp_path: Path
) -> None:
    settings = Settings(topics=TopicSettings(replication_factor=1, min_insync_replicas=1), prefix=fresh_prefix)
    log = open_log(arguments[1])
    log.create([replace(spec, config={**spec.config, setting[0]: setting[1]}) for spec in settings.topic_specs()])
    runs = tmp_path / "runs.jsonl"
    runs.write_bytes(chat_line(chat_record()))

    for command in (("import", runs), ("process", "--once")):
        refused = run(arguments, *command, exit_code=3).stderr
        assert f"{setting[0]} is {setting[1]}, wanted" in refused
        assert "tracklog topics verify" in refused
    topic = f"{fresh_prefix}.events"
    assert all(log.bounds(topic, one).end == 0 for one in range(log.partition_count(topic)))
    log.close()
