"""Trimming what nobody needs: what stays, what goes, and that all of it reads as before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from tests.support.chains import Chain, append_all, run_of
from tests.support.cold import export_to
from tracklog.consumers.cli.app import app
from tracklog.consumers.importing import import_into
from tracklog.consumers.wiring import opened_log
from tracklog.infra.clock import SystemClock
from tracklog.infra.cold.joined import JoinedLog
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Bounds
from tracklog.infra.log.ranges import read_range
from tracklog.infra.settings import Settings, load_settings
from tracklog.infra.topic_admin import apply as make_topics
from tracklog.producers.data import shipped_runs
from tracklog.producers.importers.run import Run
from tracklog.producers.post import Poster
from tracklog.schemas import events as ev
from tracklog.schemas.inbox import Message
from tracklog.schemas.values import Body, Driver, InboxId, Ref, Role

PARTITIONS = 2


class World:
    """One installation: its log, its cold tier, its commands."""

    def __init__(self, home: Path, url: str, prefix: str) -> None:
        self.flags = {
            "home": str(home),
            "log": url,
            "prefix": prefix,
            "topics.partitions": str(PARTITIONS),
            "topics.replication_factor": "1",
            "topics.min_insync_replicas": "1",
        }
        self.settings: Settings = load_settings(flags=self.flags, environ={}, cwd=home)
        with opened_log(self.settings) as log:
            make_topics(log, self.settings.topic_specs())

    def fill(self, *chains: Chain) -> None:
        with opened_log(self.settings) as log:
            append_all(log, self.topic, [record for chain in chains for record in chain.records])

    def export(self) -> None:
        with opened_log(self.settings) as log:
            export_to(log, self.settings)

    @property
    def topic(self) -> str:
        return self.settings.topic_names.events

    def kept(self, topic: str | None = None) -> list[Bounds]:
        """Of the log alone."""
        with opened_log(self.settings) as log:
            assert isinstance(log, JoinedLog)
            return [log.hot.bounds(topic or self.topic, p) for p in range(PARTITIONS)]

    def run(self, *words: str, exit_code: int = 0) -> Result:
        given = [word for name, value in self.flags.items() for word in ("--set", f"{name}={value}") if name != "log"]
        line = [*words, "--log", self.flags["log"], *given]
        result = CliRunner().invoke(app, line)
        assert result.exit_code == exit_code, f"{line}: {result.output}\n{result.exception!r}"
        return result

    def json(self, *words: str, exit_code: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", exit_code=exit_code).stdout)

    def cut_of(self, plan: Any, topic: str, trajectory_id: str) -> Any:
        partition = partition_of(trajectory_id.encode(), PARTITIONS)
        (one,) = [cut for cut in plan["partitions"] if (cut["topic"], cut["partition"]) == (topic, partition)]
        return one


@pytest.fixture(params=["sqlite", pytest.param("kafka", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest, tmp_path: Path, log_urls: Callable[[str], str], fresh_prefix: str) -> World:
    return World(tmp_path, log_urls(request.param), fresh_prefix)


@pytest.fixture
def local(tmp_path: Path, log_urls: Callable[[str], str], fresh_prefix: str) -> World:
    return World(tmp_path, log_urls("sqlite"), fresh_prefix)


def beside(name: str, prefix: str) -> Iterator[str]:
    """Other names of its partition."""
    at = partition_of(name.encode(), PARTITIONS)
    return (f"{prefix}-{n}" for n in range(100) if partition_of(f"{prefix}-{n}".encode(), PARTITIONS) == at)


def test_after_trimming_everything_reads_as_before(world: World) -> None:
    with opened_log(world.settings) as log:
        import_into(log, world.settings, islice((one for one in shipped_runs() if isinstance(one, Run)), 4))
    world.export()
    name = "airline-0-1"
    turn = ("at", name, "--turn", "2")
    commands = (("show", name, "--from-log"), ("verify", "--all"), ("replay", "trajectory", name), turn)
    before = [world.json(*words) for words in commands]
    events = world.run("replay", "events", "--json").stdout
    ends = [one.end for one in world.kept()]

    dry = world.json("retention", "apply", "--keep-days", "0")
    assert (dry["applied"], dry["records"], dry["compared"]) == (False, sum(ends), sum(ends))
    assert [one.first for one in world.kept()] == [0] * PARTITIONS
    assert world.json("retention", "apply")["records"] == 0, "what is young stays"

    assert world.json("retention", "apply", "--keep-days", "0", "--yes")["applied"]

    assert world.kept() == [Bounds(end, end) for end in ends]
    assert [world.json(*words) for words in commands] == before
    assert world.run("replay", "events", "--json").stdout == events
    again = world.json("retention", "status", "--keep-days", "0")
    assert (again["records"], again["gaps"]) == (0, [])
    world.run("process", "--once")
    assert {one["trajectory_id"] for one in world.json("list")["trajectories"]} >= {name}
    with opened_log(world.settings) as log:
        report = import_into(log, world.settings, islice((one for one in shipped_runs() if isinstance(one, Run)), 5))
    assert (report.new, report.already) == (1, 4)
    assert [one.first for one in world.kept()] == ends


def test_verify_says_of_what_it_saw_nothing_when_the_cold_tier_is_not_there(local: World) -> None:
    # given a log of which all is trimmed
    with opened_log(local.settings) as log:
        import_into(log, local.settings, islice((one for one in shipped_runs() if isinstance(one, Run)), 2))
    local.export()
    whole = local.json("verify", "--all")
    assert (whole["trajectories"], whole["kept_from"]) == (2, {})
    local.run("retention", "apply", "--keep-days", "0", "--yes")
    # when it is verified by somebody who does not name the cold tier
    elsewhere = ("verify", "--all", "--set", f"cold.url={local.flags['home']}/elsewhere")
    found = local.json(*elsewhere)
    # then that nothing was wrong is not all that is said
    assert found["trajectories"] == 0
    assert found["kept_from"] == {str(p): bounds.end for p, bounds in enumerate(local.kept()) if bounds.end}
    assert "was not looked at" in local.run(*elsewhere).stderr


def test_one_that_goes_on_and_what_is_not_exported_stay(local: World) -> None:
    over = run_of("over", turns=1)
    open_id = next(beside("over", "open"))
    local.fill(over, run_of(open_id, turns=1, ending=None), run_of(next(beside("over", "late")), turns=1))

    with_nothing = local.run("retention", "apply", "--keep-days", "0", "--yes", exit_code=3)
    assert "tracklog export" in with_nothing.stderr

    local.export()
    plan = local.json("retention", "apply", "--keep-days", "0", "--yes")
    cut = local.cut_of(plan, local.topic, "over")
    assert (cut["before"], open_id in cut["why"]) == (len(over.records), True)

    done = run_of(next(beside("over", "more")), turns=1)
    local.fill(done)
    plan = local.json("retention", "status", "--keep-days", "0")
    assert local.cut_of(plan, local.topic, "over")["before"] == len(over.records)
    assert open_id in local.run("retention", "status", "--keep-days", "0").stdout


def test_partitions_that_keep_nothing_are_counted_and_not_shown(local: World) -> None:
    local.fill(run_of("over", turns=1))
    local.export()

    def table(*more: str) -> Result:
        return local.run("retention", "status", *more)

    held, free = table(), table("--keep-days", "0")

    for result in (held, free):
        (row,) = [line.split() for line in result.stdout.splitlines() if line.strip().startswith(local.flags["prefix"])]
        assert row[0] == local.topic
        assert "5 partitions that keep nothing are left out" in result.stderr
    assert "its age" in held.stdout
    assert "its age" not in free.stdout
    assert len(local.json("retention", "status")["partitions"]) == 3 * PARTITIONS


def test_the_origin_of_a_fork_that_goes_on_stays_and_of_one_that_ended_goes(local: World) -> None:
    origin = run_of("origin", turns=2)
    fork = Chain("fork")
    fork.claim()
    task = ev.TaskStarted(
        driver=Driver.WORKER, task=Body.of("x"), agent="a", origin=Ref(trajectory_id="origin", seq=3), inherited_turn=1
    )
    fork.add(task)
    local.fill(origin, fork)
    local.export()

    plan = local.json("retention", "status", "--keep-days", "0")
    cut = local.cut_of(plan, local.topic, "origin")
    assert cut["before"] == 0
    assert cut["why"] in ("origin: a fork of it is not over", "fork: running")


def test_the_inbox_is_kept_from_the_oldest_record_that_was_not_taken(local: World) -> None:
    names = [run_of("over", turns=1), run_of(next(beside("over", "open")), turns=1, ending=None)]
    local.fill(*names)
    local.export()
    inbox = local.settings.topic_names.inbox

    async def said(*to: str) -> None:
        with opened_log(local.settings) as log:
            poster = Poster(log, local.settings.topic_names, clock=SystemClock())
            for seq, name in enumerate(to):
                message = Message(peer="ada", role=Role.USER, message=Body.of("hello"))
                await poster.post(name, message, inbox_id=InboxId(source="ada", seq=seq))

    asyncio.run(said("over", names[1].trajectory_id, "over"))

    plan = local.json("retention", "apply", "--keep-days", "0", "--yes")
    cut = local.cut_of(plan, inbox, "over")
    assert "that was not taken" in cut["why"] or "not begun" in cut["why"]
    assert local.kept(inbox)[cut["partition"]].first == cut["before"]


def test_a_table_that_differs_keeps_everything_and_names_the_record(local: World) -> None:
    local.fill(run_of("over", turns=1))
    local.export()
    with opened_log(local.settings) as log:
        assert isinstance(log, JoinedLog)
        partition = partition_of(b"over", PARTITIONS)
        end = log.hot.bounds(local.topic, partition).end
    DeltaTable(f"{local.settings.cold.url}/events").delete("seq = 2")

    refused = local.run("retention", "apply", "--keep-days", "0", "--yes", exit_code=3)

    assert "offset 2" in refused.stderr
    assert local.kept()[partition] == Bounds(0, end)


@pytest.mark.parametrize(("column", "value"), [("body", "'{\"forged\": true}'"), ("turn", "77")])
def test_a_readable_column_that_differs_keeps_everything_too(local: World, column: str, value: str) -> None:
    local.fill(run_of("over", turns=1))
    local.export()
    before = local.kept()
    DeltaTable(f"{local.settings.cold.url}/events").update({column: value}, predicate="offset = 2")

    refused = local.run("retention", "apply", "--keep-days", "0", "--yes", exit_code=3)

    assert "offset 2" in refused.stderr
    assert f"column {column}" in refused.stderr
    assert local.kept() == before


def test_a_gap_between_log_and_table_is_told_and_fails_the_status(local: World) -> None:
    local.fill(run_of("one", turns=1))
    local.export()
    local.fill(run_of(next(beside("one", "two")), turns=1), run_of(next(beside("one", "three")), turns=1))
    partition = partition_of(b"one", PARTITIONS)
    with opened_log(local.settings) as log:
        assert isinstance(log, JoinedLog)
        end = log.hot.bounds(local.topic, partition).end
        log.hot.delete_records(local.topic, {partition: end - 2})

    found = local.run("retention", "status", exit_code=1)

    assert "the events between are lost" in found.stderr
    with opened_log(local.settings) as log:
        assert log.bounds(local.topic, partition) == Bounds(end - 2, end)
        assert [one.offset for one in read_range(log, local.topic, partition, 0, end)] == [end - 2, end - 1]
