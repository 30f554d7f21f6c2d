"""Whether a version can go on with what another has left: records, schemas and projections that it may not know."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.projecting import World, append_runs, world_on
from tests.support.standing import BOUND_S, ROOT, Installation
from tracklog.consumers.fitting import fit_of_projections, fit_of_records, fit_of_registry
from tracklog.infra.log.ranges import append_and_wait
from tracklog.infra.registry import SchemaRegistry, SubjectSchema, subject_of
from tracklog.processors.store_keys import pointer_key
from tracklog.processors.trajectories import Trajectories
from tracklog.schemas import catalog
from tracklog.schemas.catalog import HEADER_TYPE
from tracklog.schemas.codec import SINGLE_OBJECT_MARK
from tracklog.schemas.topics import Topics

UNKNOWN = bytes.fromhex("00112233445566ff")


@pytest.fixture
def world(log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str) -> Iterator[World]:
    with world_on(log_urls("sqlite"), redis_db, fresh_prefix) as made:
        append_runs(made, 5)
        made.drain()
        yield made


def append_unknown(world: World, name: str = "ToolResult") -> str:
    """A record of ours in a version of its type that nobody here has. Its place."""
    value = SINGLE_OBJECT_MARK + UNKNOWN + b"envelope and body"
    position = append_and_wait(
        world.log, world.topic, b"run-0", value, ((HEADER_TYPE, name.encode()),), timeout_s=BOUND_S
    )
    return f"{position.partition}:{position.offset}"


def test_what_this_version_has_written_it_reads(world: World) -> None:
    records = fit_of_records(world.log, Topics(world.settings.prefix), 10_000)
    projections = fit_of_projections(world.client, world.settings.prefix)

    assert (records.looked, records.misfits) == (sum(world.ends().values()), [])
    assert (projections.looked, projections.misfits) == (1, [])


def test_records_of_a_version_not_known_here_are_named_with_their_topic_and_place(world: World) -> None:
    append_unknown(world)
    place = append_unknown(world)
    append_unknown(world, "NotYetInvented")

    misfits = fit_of_records(world.log, Topics(world.settings.prefix), 10_000).misfits

    assert [(one.where, one.severity) for one in misfits] == [(world.topic, "required")] * 2
    assert "1 of the newest records are NotYetInvented" in misfits[0].problem
    assert f"2 of the newest records are ToolResult of a version not known here (fingerprint {UNKNOWN.hex()}" in (
        misfits[1].problem
    )
    assert f"the last one at {place}" in misfits[1].problem


def test_only_the_newest_records_of_each_partition_are_looked_at(world: World) -> None:
    append_unknown(world)
    partition, end = next((p, end) for p, end in world.ends().items() if end)

    fit = fit_of_records(world.log, Topics(world.settings.prefix), 1)

    assert fit.looked == sum(1 for end in world.ends().values() if end)
    assert len(fit.misfits) == 1, (partition, end)


def test_topics_that_are_not_there_hold_nothing_that_could_be_misread(world: World) -> None:
    fit = fit_of_records(world.log, Topics(f"{world.settings.prefix}-none"), 10)

    assert (fit.looked, fit.misfits) == (0, [])


def test_readers_are_not_led_to_a_projection_that_is_newer_than_they_are(world: World) -> None:
    newer = Trajectories.version + 1
    world.client.hset(pointer_key(world.settings.prefix, Trajectories.name), "version", newer)
    world.client.hset(pointer_key(world.settings.prefix, "of-somebody-else"), mapping={"version": 99, "partitions": 3})

    [misfit] = fit_of_projections(world.client, world.settings.prefix).misfits

    assert (misfit.where, misfit.severity) == (Trajectories.name, "required")
    assert f"version {newer} in Redis, and the one here is version {Trajectories.version}" in misfit.problem
    assert f"projections switch {Trajectories.name} --version {Trajectories.version}" in misfit.hint


def registered(url: str, prefix: str, change: Callable[[dict[str, Any]], None]) -> SchemaRegistry:
    """A registry that has our newest schema of TaskEnded and then a changed one."""
    schema = catalog.newest("TaskEnded")
    subject = subject_of(Topics(prefix).events, catalog.full_name("TaskEnded"))
    changed = json.loads(schema.text)
    change(changed)
    registry = SchemaRegistry(url, timeout_s=10)
    registry.register_all([SubjectSchema(subject, json.dumps(changed))])
    return registry


@pytest.mark.registry
def test_a_compatible_version_in_the_registry_is_told_and_refuses_nothing(registry_url: str, fresh_prefix: str) -> None:
    more = {"name": "mood", "type": ["null", "string"], "default": None}
    registry = registered(registry_url, fresh_prefix, lambda schema: schema["fields"].append(more))

    fit = fit_of_registry(registry, Topics(fresh_prefix))

    assert fit.looked == 1
    assert [one.severity for one in fit.misfits] == ["advised"]


@pytest.mark.registry
def test_a_version_in_the_registry_that_does_not_go_with_ours_is_refused(registry_url: str, fresh_prefix: str) -> None:
    registry = registered(
        registry_url, fresh_prefix, lambda schema: schema["fields"].append({"name": "mood", "type": "string"})
    )

    [misfit] = fit_of_registry(registry, Topics(fresh_prefix)).misfits

    assert misfit.severity == "required"
    assert "mood" in misfit.problem


def test_the_command_ends_with_1_where_this_version_must_not_start(world: World, redis_db: str, tmp_path: Path) -> None:
    here = Installation(world.log.url, redis_db, world.settings.prefix, tmp_path)
    assert "this version reads all of it" in here.run("schemas", "check")
    append_unknown(world)

    done = subprocess.run(
        here.command("schemas", "check"),
        env=here.environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BOUND_S,
    )

    assert done.returncode == 1, done.stderr
    assert f"refused: {world.topic}: 1 of the newest records are ToolResult" in done.stdout
