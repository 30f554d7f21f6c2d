"""Reading the projection: every filter against brute force, pages with a stable cursor, kept records and bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conftest import require_valkey
from tests.support.chains import append_all, interleaved, run_of
from tests.support.projecting import World, append_runs, folded_anew, said, world_on
from tracklog.consumers.read import Cursor, Filter, Reader
from tracklog.infra.redis_client import connect
from tracklog.infra.stack.valkey_server import ValkeyServer
from tracklog.processors.indexes import by_status
from tracklog.processors.trajectory import Trajectory
from tracklog.schemas.errors import RangeError, StoreError
from tracklog.schemas.values import Ending

RUNS = 40

FILTERS = [
    Filter(),
    Filter(tenant="acme"),
    Filter(status="completed"),
    Filter(status="no such status"),
    Filter(tool="pay"),
    Filter(model="model-1"),
    Filter(labels={"order": "W3"}),
    Filter(tenant="umbrella", status="failed", tool="search"),
    Filter(tenant="acme", status="running", tool="book", model="model-0", labels={"order": "W2"}),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One log and one server of their own for all tests that only read."""
    require_valkey()
    server = ValkeyServer(tmp_path_factory.mktemp("redis"), persistence="none")
    log_url = f"sqlite:{tmp_path_factory.mktemp('log') / 'log.db'}"
    try:
        with world_on(log_url, server.start(), "read") as made:
            append_runs(made, RUNS // 2)
            append_runs(made, RUNS // 2, first=RUNS // 2)
            made.drain()
            yield made
    finally:
        server.kill()


@pytest.fixture
def changing(log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str) -> Iterator[World]:
    with world_on(log_urls("sqlite"), redis_db, fresh_prefix) as made:
        append_runs(made, 12)
        made.drain()
        yield made


def passes(one: Trajectory, wanted: Filter) -> bool:
    state = one.state
    labels = state.task.labels if state.task is not None else {}
    return (
        wanted.tenant in (None, state.tenant)
        and wanted.status in (None, one.status)
        and (wanted.tool is None or wanted.tool in state.tools)
        and wanted.model in (None, one.model)
        and wanted.labels.items() <= labels.items()
        and (wanted.since_ms is None or one.last_ms >= wanted.since_ms)
        and (wanted.until_ms is None or one.last_ms < wanted.until_ms)
    )


def expected(world: World, wanted: Filter) -> list[str]:
    every = [one for one, _ in folded_anew(world).values() if passes(one, wanted)]
    return [one.trajectory_id for one in sorted(every, key=lambda t: (t.last_ms, t.trajectory_id), reverse=True)]


def paged(reader: Reader, wanted: Filter, limit: int) -> list[str]:
    found: list[str] = []
    cursor: Cursor | None = None
    for _ in range(RUNS + 1):
        page = said(reader.states(wanted, cursor, limit))
        assert len(page.trajectories) <= limit
        found += [one.trajectory_id for one in page.trajectories]
        cursor = page.next
        if cursor is None:
            return found
    raise AssertionError("the pages have no end")


@pytest.mark.parametrize("limit", [1, 1000])
@pytest.mark.parametrize("wanted", FILTERS, ids=str)
def test_every_filter_finds_what_brute_force_finds_newest_first(world: World, wanted: Filter, limit: int) -> None:
    assert paged(world.reader(), wanted, limit) == expected(world, wanted)


def test_times_bound_a_list_from_inclusive_to_exclusive(world: World) -> None:
    times = sorted({one.last_ms for one, _ in folded_anew(world).values()})
    for since, until in [(times[0], times[-1]), (times[0], times[0]), (times[-1], times[-1] + 1), (None, times[-1])]:
        wanted = Filter(since_ms=since, until_ms=until)

        assert paged(world.reader(), wanted, 3) == expected(world, wanted)


def test_a_tie_longer_than_a_page_is_paged_through(changing: World) -> None:
    keys = changing.running().store.keys
    for partition in changing.ends():
        by_time = keys.key(partition, "by:time")
        for name in folded_anew(changing):
            changing.client.zadd(by_time, {name: 1000}, xx=True)

    assert paged(changing.reader(), Filter(), 2) == sorted(folded_anew(changing), reverse=True)


def test_a_trajectory_that_moves_between_pages_is_not_shown_twice(changing: World) -> None:
    first = said(changing.reader().states(limit=6))
    moved = first.trajectories[3].trajectory_id
    chain = run_of(moved)
    append_all(changing.log, changing.topic, [chain.records[0]])
    changing.drain()

    rest = said(changing.reader().states(cursor=first.next, limit=12))

    assert not {one.trajectory_id for one in rest.trajectories} & {one.trajectory_id for one in first.trajectories}
    assert len(rest.trajectories) == 12 - len(first.trajectories)


def test_a_cursor_travels_as_text(world: World) -> None:
    cursor = said(world.reader().states(limit=1)).next

    assert cursor is not None
    assert Cursor.of(cursor.token()) == cursor
    assert Cursor.of("5:a:b") == Cursor(5, "a:b")


@pytest.mark.parametrize("token", ["", "5", "5:", ":x", "x:y", "--1:x", "1" * 17 + ":x", "²:x"])
def test_a_text_that_is_no_cursor_is_refused(token: str) -> None:
    with pytest.raises(RangeError, match="no cursor"):
        Cursor.of(token)


def test_one_trajectory_is_read_with_its_facts(world: World) -> None:
    anew, records = folded_anew(world)["run-0007"]

    assert said(world.reader().state("run-0007")) == anew
    assert said(world.reader().state("nobody")) is None
    kept = said(world.reader().kept("run-0007"))
    assert kept.records == records
    assert kept.complete
    assert kept.offsets == [record.offset for record in records]
    assert said(world.reader().kept("nobody")).records == []


def test_statuses_are_counted(world: World) -> None:
    statuses = [one.status for one, _ in folded_anew(world).values()]

    counts = said(world.reader().counts())

    assert counts.pop("all") == RUNS
    assert {status: n for status, n in counts.items() if n} == {s: statuses.count(s) for s in set(statuses)}


def test_a_trajectory_is_under_its_present_status_only(changing: World) -> None:
    chain = run_of("mover", ending=None)
    append_all(changing.log, changing.topic, chain.records)
    changing.drain()
    keys, partition = changing.running().store.keys, folded_anew(changing)["mover"][0].partition
    running, completed = (keys.key(partition, by_status(word)) for word in ("running", "completed"))
    assert changing.client.zscore(running, "mover") is not None

    append_all(changing.log, changing.topic, run_of("mover", ending=Ending.COMPLETED).records[len(chain.records) :])
    changing.drain()

    assert changing.client.zscore(running, "mover") is None
    assert changing.client.zscore(completed, "mover") is not None


def test_how_far_it_is_folded_is_told_by_partition(changing: World) -> None:
    ends = changing.ends()
    append_runs(changing, 3, first=12)

    assert changing.positions() == ends


def test_the_newest_events_of_a_long_trajectory_are_kept_and_it_is_said_that_more_exist(
    log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str
) -> None:
    few = {"warm_log_events_max": 5}
    with world_on(log_urls("sqlite"), redis_db, fresh_prefix, projection=few) as world:
        append_all(world.log, world.topic, interleaved([run_of("long", turns=20), run_of("short", turns=1)]))
        world.drain()

        kept = said(world.reader().kept("long"))

        _, records = folded_anew(world)["long"]
        assert kept.records == records[-5:]
        assert not kept.complete
        assert kept.offsets == [record.offset for record in records]


def test_nothing_is_kept_when_the_bound_is_zero(
    log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str
) -> None:
    with world_on(log_urls("sqlite"), redis_db, fresh_prefix, projection={"warm_log_events_max": 0}) as world:
        append_runs(world, 2)
        world.drain()

        kept = said(world.reader().kept("run-0000"))

        assert kept.records == []
        assert not kept.complete
        assert kept.offsets


def test_a_store_without_a_projection_is_said_so(redis_db: str, fresh_prefix: str) -> None:
    reader = Reader(connect(redis_db, timeout_s=5), prefix=fresh_prefix)

    with pytest.raises(StoreError, match="no projection"):
        said(reader.states())
