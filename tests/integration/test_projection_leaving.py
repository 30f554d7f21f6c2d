"""Ended trajectories leave Redis by the settings: found in the log, compared and built anew as what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.chains import append_all, run_of
from tests.support.projecting import World, append_runs, folded_anew, said, stored_under, world_on
from tracklog.consumers.projections import Projections
from tracklog.consumers.read import Filter
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.settings_sections import LoopSettings
from tracklog.processors.trajectories import Trajectories
from tracklog.schemas.events import OwnershipClaimed
from tracklog.schemas.values import Driver

RUNS = 40
TENANTS = ("acme", "umbrella")
LogUrls = Callable[[str], str]


@pytest.fixture
def bounded(log_urls: LogUrls, redis_db: str, fresh_prefix: str) -> Any:
    @contextmanager
    def made(log: str = "sqlite", **projection: float) -> Iterator[World]:
        with world_on(log_urls(log), redis_db, fresh_prefix, projection=projection) as world:
            yield world

    return made


def of_tenant(world: World, tenant: str) -> list[str]:
    page = said(world.reader().states(Filter(tenant=tenant), limit=1000))
    return [one.trajectory_id for one in page.trajectories]


def is_as_the_log_says(world: World) -> bool:
    """Compared key by key, and by digest when it is built anew in batches of another size."""
    other = world.settings.model_copy(update={"loop": LoopSettings(batch_records_max=7, poll_timeout_s=0.05)})
    found = Projections(world.log, world.client, other)
    processor = Trajectories(world.settings.projection)
    compared = found.verify(processor, lambda _: None)
    assert compared.difference is None, compared.difference
    return found.rebuild(processor, lambda _: None).equal is True


@pytest.mark.parametrize("log", ["sqlite", "kafka"])
def test_of_each_tenant_the_oldest_ended_ones_leave(bounded: Any, log: str) -> None:
    with bounded(log, ended_per_tenant_max=2) as world:
        append_runs(world, RUNS)
        world.drain()
        append_runs(world, RUNS, first=RUNS)  # another process goes on
        world.drain()

        every, partitions = folded_anew(world), len(world.ends())
        for tenant in TENANTS:
            here = of_tenant(world, tenant)
            running = {n for n, (t, _) in every.items() if t.state.tenant == tenant and not t.state.ended}
            assert running < set(here), "who has not ended stays"
            assert len(here) - len(running) <= 2 * partitions
        kept = said(world.reader().counts())["all"]
        assert partitions < kept < len(every)
        assert is_as_the_log_says(world)


def test_what_has_left_is_read_in_the_log_and_keeps_nothing_but_its_place(bounded: Any) -> None:
    with bounded(ended_age_s=0.001) as world:
        append_all(world.log, world.topic, run_of("old", turns=2).records)
        world.drain()
        (partition,) = (p for p, end in world.ends().items() if end)
        key = world.running().store.keys.base(partition)
        mine = next(n for n in (f"new-{i}" for i in range(100)) if same_partition(world, n, partition))
        append_all(world.log, world.topic, run_of(mine, turns=1, ending=None).records)
        world.drain()

        assert said(world.reader().state("old")) is None
        found = [name for name in stored_under(world.client, key) if name.endswith("old")]
        assert found == ["h:old"]
        assert b"old" not in stored_under(world.client, key)["log-bytes"]
        answer = said(world.reader().events("old"))
        assert len(answer) == len(run_of("old", turns=2).records)
        # a former owner that wakes up begins nothing
        late = OwnershipClaimed(owner="late", nonce=bytes(16), driver=Driver.IMPORT)
        zombie = run_of("old", turns=0).records[:1]
        append_all(world.log, world.topic, [*zombie, run_of("old", turns=2).peek(late)])
        world.drain()
        assert said(world.reader().state("old")) is None
        assert is_as_the_log_says(world)


def test_more_than_go_into_one_step_leave_at_once(bounded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("projection", "projection_folding"):
        monkeypatch.setattr(f"tracklog.processors.{module}.LEAVE_MAX", 3)
    with bounded(ended_age_s=0.001) as world:
        append_runs(world, RUNS)
        world.drain()
        append_runs(world, 10, first=RUNS)
        world.drain()
        every = folded_anew(world)
        ended = {name for name, (one, _) in every.items() if one.state.ended}
        assert said(world.reader().counts())["all"] < len(every) - len(ended) + 20
        assert is_as_the_log_says(world)


def test_of_a_tenant_no_more_bytes_of_events_are_kept_and_what_has_left_is_read_in_the_log(bounded: Any) -> None:
    with bounded(warm_log_tenant_bytes_max=20_000) as world:
        append_runs(world, RUNS)
        world.drain()
        keys = world.running().store.keys
        gone = 0
        for partition in world.ends():
            stored = stored_under(world.client, keys.base(partition))
            totals = {tenant: int(size) for tenant, size in stored.get("log-bytes-of", {}).items()}
            kept = {name[len("log:") :] for name in stored if name.startswith("log:")}
            gone += sum(name.startswith("t:") for name in stored) - len(kept)
            assert all(0 < size <= 20_000 for size in totals.values())
            assert sum(totals.values()) == sum(map(int, stored.get("log-bytes", {}).values()))
        assert gone > 0

        for name, (_, records) in folded_anew(world).items():
            assert len(said(world.reader().events(name))) == len(records)
        assert said(world.reader().counts())["all"] == RUNS, "states stay"
        assert is_as_the_log_says(world)


def test_without_bounds_none_leaves(bounded: Any) -> None:
    with bounded(ended_age_s=0, ended_per_tenant_max=0) as world:
        append_runs(world, RUNS)
        world.drain()
        assert said(world.reader().counts())["all"] == RUNS


def same_partition(world: World, name: str, partition: int) -> bool:
    return partition_of(name.encode(), len(world.ends())) == partition
