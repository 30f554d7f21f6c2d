"""The read client: how far an answer is folded, waiting for a position, events from Redis and log, what views keep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import pytest

from tests.support.chains import append_all, interleaved, run_of
from tests.support.projecting import World, append_runs, folded_anew, world_on
from tracklog.consumers.read import Reader
from tracklog.consumers.read_live import LOG, Pinned, all_of, looked, seen_of
from tracklog.consumers.read_shown import shown_of
from tracklog.consumers.read_totals import EntryPlace, key_names
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.port import Position
from tracklog.infra.redis_client import connect
from tracklog.processors.loading import BUILTIN
from tracklog.processors.processor import Processor, Seen, Shape
from tracklog.processors.redis_store import LiveKeys
from tracklog.processors.running import processes
from tracklog.processors.writes import Add, Push, PutJson, Rank, SetFields, Write
from tracklog.schemas.errors import InputError, NotFolded, RangeError, ReadBehind, StoreError, StoreUnavailable

RUNS = 12


class Everything(Processor[int]):
    """Events of each tenant, in each shape that a layout can have; every partition has a part of it."""

    name = "everything"
    version = 1
    layout: ClassVar = {
        "hash": Shape.HASH,
        "words": Shape.HASH,
        "counters": Shape.COUNTERS,
        "tenants": Shape.SORTED_SET,
        "trajectories": Shape.SORTED_SET,
        "ends": Shape.STREAM,
        "newest": Shape.JSON,
    }

    def key(self, seen: Seen) -> str:
        return seen.event.envelope.tenant

    def start(self, key: str) -> int:
        return 0

    def apply(self, state: int, seen: Seen) -> int:
        return state + 1

    def writes(self, key: str, before: int | None, after: int) -> Iterable[Write]:
        yield SetFields("hash", {key: after})
        yield SetFields("words", {"last": key})
        yield Rank(["tenants"], key, after)
        yield PutJson(f"newest:{key}", {"events": after})

    def emit(self, key: str, after: int, seen: Seen) -> Iterable[Write]:
        yield Add("counters", {key: 1})
        name = seen.event.envelope.trajectory_id
        yield Rank(["trajectories"], name, seen.event.envelope.seq)
        if seen.event.name == "TaskEnded":
            yield Push("ends", seen.record.offset, {"who": name})


@pytest.fixture
def world(log_urls: Callable[[str], str], redis_db: str, fresh_prefix: str) -> Iterator[World]:
    with world_on(log_urls("sqlite"), redis_db, fresh_prefix, projection={"warm_log_events_max": 30}) as made:
        yield made


def fold(world: World, *more: Processor[Any]) -> None:
    processors = [*(kind() for kind in BUILTIN), *more]
    given = world.log, world.client, world.settings
    processes(processors, *given, clock=SystemClock(), entropy=SystemEntropy(), builtin=True).drain()


def seen_at(position: Position) -> dict[int, int]:
    return {position.partition: position.offset}


async def test_an_answer_says_how_far_it_is_folded_and_how_much_is_behind_it(world: World) -> None:
    append_runs(world, RUNS)
    fold(world)
    ends = world.ends()
    (late,) = append_all(world.log, world.topic, run_of("late", turns=1).records[:1])

    page = await world.reader().states(limit=3)

    assert page.as_of.positions == ends
    assert page.as_of.source == "trajectories-v5"
    assert await world.reader().behind(page.as_of) == {p: int(p == late.partition) for p in ends}
    one = await world.reader().state("run-0001")
    assert one.value is not None
    assert one.as_of.positions == {one.value.partition: ends[one.value.partition]}
    assert seen_of(str(page.as_of)) == ends
    with pytest.raises(StoreError, match="only the log says"):
        await Reader(world.client, prefix=world.settings.prefix).behind(page.as_of)


async def test_what_was_written_is_waited_for_and_found(world: World) -> None:
    fold(world)
    (position,) = append_all(world.log, world.topic, run_of("mine", turns=1).records[:1])
    assert (await world.reader().state("mine")).value is None

    asked = asyncio.create_task(world.reader().seeing(seen_at(position), wait_s=20).state("mine"))
    await asyncio.to_thread(fold, world)
    found = await asked

    assert found.value is not None
    assert found.as_of.positions[position.partition] == position.offset + 1


async def test_who_waits_in_vain_is_told_partition_wanted_and_present_offset(world: World) -> None:
    append_runs(world, 2)
    fold(world)
    ends = world.ends()
    (position,) = append_all(world.log, world.topic, run_of("mine", turns=1).records[:1])
    reader = world.reader()

    with pytest.raises(ReadBehind, match=f"partition {position.partition}, and offset {position.offset}") as late:
        await reader.seeing(seen_at(position), wait_s=0.1).states()

    assert late.value.details == {
        "partition": position.partition,
        "wanted": position.offset,
        "present": ends[position.partition],
    }
    assert "tracklog process" in late.value.hint
    with pytest.raises(ReadBehind) as early:
        await reader.seeing({0: ends[0] + 50}, wait_s=0.0).counts()
    assert "nothing is there yet" in early.value.hint
    # one that is folded is not waited for, offset 0 is one, and a partition that is not there is refused
    assert (await reader.seeing({p: end - 1 for p, end in ends.items() if end}, wait_s=0).states()).value.trajectories
    with pytest.raises(RangeError, match="no partition 7"):
        await reader.seeing({7: 0}).states()


async def test_a_projection_that_nobody_folded_is_waited_for_too(world: World) -> None:
    (position,) = append_all(world.log, world.topic, run_of("mine", turns=1).records[:1])
    with pytest.raises(NotFolded):
        await world.reader().seeing(seen_at(position), wait_s=0.1).spend("2026-03-01")
    asked = asyncio.create_task(world.reader().seeing(seen_at(position), wait_s=20).counts())

    await asyncio.to_thread(fold, world)

    assert (await asked).value["all"] == 1


@pytest.mark.parametrize("text", ["", "1", "1:", ":1", "1:2:3", "a:b", "1:-2", "1:2,", "١:٢", "1:" + "9" * 19])
def test_a_text_that_names_no_positions_is_refused(text: str) -> None:
    assert seen_of("0:0, 3:17") == {0: 0, 3: 17}
    with pytest.raises(RangeError, match="no positions"):
        seen_of(text)


async def test_events_come_from_redis_and_what_it_does_not_keep_from_the_log(world: World) -> None:
    append_all(world.log, world.topic, interleaved([run_of("long", turns=12), run_of("short", turns=1)]))
    fold(world)
    anew = folded_anew(world)
    reader = world.reader()

    short, long = await reader.records("short"), await reader.records("long")

    assert (short.value, short.as_of.source) == (anew["short"][1], "trajectories-v5")
    assert (long.value, long.as_of.source) == (anew["long"][1], LOG)
    found = await reader.events("long", after_seq=2, limit=4)
    assert [seen.event.envelope.seq for seen in found.value] == [3, 4, 5, 6]
    # what is not folded yet, or while Redis is away, is the log's to say
    append_all(world.log, world.topic, run_of("new", turns=1).records)
    nowhere = connect("redis://127.0.0.1:1", timeout_s=0.2, check=False)
    away = Reader(nowhere, prefix=world.settings.prefix, log=world.log)
    for one in (reader, away):
        answer = await one.events("new")
        assert (answer.as_of.source, len(answer.value)) == (LOG, len(folded_anew(world)["new"][1]))
    assert (await reader.events("nobody")).value == []
    # and without a log it is said that there are more
    alone = Reader(world.client, prefix=world.settings.prefix)
    with pytest.raises(StoreError, match="Redis keeps 30 of the"):
        await alone.records("long")
    assert (await alone.records("nobody")).value == []
    with pytest.raises(StoreUnavailable):
        await Reader(nowhere, prefix=world.settings.prefix).records("new")


async def test_what_a_processor_of_ones_own_keeps_is_summed_over_partitions(world: World) -> None:
    append_runs(world, RUNS)
    fold(world, Everything())
    reader = world.reader()
    expected: dict[str, int] = {}
    seqs: dict[str, int] = {}
    for name, (one, records) in folded_anew(world).items():
        expected[one.state.tenant] = expected.get(one.state.tenant, 0) + len(records)
        seqs[name] = one.state.head.seq

    for key in ("hash", "counters", "tenants"):
        assert (await reader.totals("everything", key)).value == expected, key
    parts = (await reader.parts("everything", "newest:acme")).value
    assert sum(one["events"] for one in parts.values()) == expected["acme"]
    assert {one["last"] for one in (await reader.parts("everything", "words")).value.values()} <= set(expected)
    assert (await reader.keys("everything", "newest")).value == ["newest:acme", "newest:umbrella"]
    for lowest_first in (False, True):
        rows, cursor = list[tuple[int, str]](), None
        while True:
            page = (
                await reader.ranked("everything", "trajectories", lowest_first=lowest_first, cursor=cursor, limit=5)
            ).value
            rows += [(one.score, one.member) for one in page.rows]
            cursor = page.next
            if cursor is None:
                break
        assert rows == sorted(((seq, name) for name, seq in seqs.items()), reverse=not lowest_first)


async def test_entries_of_a_stream_come_in_pages_each_once_the_newest_of_a_partition_first(world: World) -> None:
    append_runs(world, RUNS)
    fold(world, Everything())
    ended = {name: one for name, (one, _) in folded_anew(world).items() if one.state.ended}
    found, cursor = [], None
    while True:
        page = (await world.reader().entries("everything", "ends", cursor=cursor, limit=2)).value
        assert len(page.rows) <= 2
        found += page.rows
        cursor = page.next
        if cursor is None:
            break
        assert EntryPlace.of(cursor.token()) == cursor
    assert sorted(one.fields["who"] for one in found) == sorted(ended)
    for partition in world.ends():
        offsets = [one.offset for one in found if one.partition == partition]
        assert offsets == sorted(offsets, reverse=True)
    for token in ("x", "1-2", "1-2-3-4", "-1-2-3"):
        with pytest.raises(RangeError, match="no cursor"):
            EntryPlace.of(token)


async def test_what_comes_with_it_is_read_by_name(world: World) -> None:
    append_runs(world, RUNS)
    fold(world)
    reader, records = world.reader(), list(world.records())
    day = (await reader.keys("spend", "meter")).value
    assert len(day) >= 1
    meters = (await reader.spend(day[0].removeprefix("meter:"))).value
    acme = (await reader.spend(day[0].removeprefix("meter:"), tenant="acme")).value
    assert {name for name in meters if name.startswith("acme|")} == set(acme)
    assert acme["acme|model-0"].calls > 0
    pay = (await reader.tool_stats("pay")).value
    assert pay.calls == pay.statuses["ok"] > 0
    assert (await reader.tool_stats("nothing")).value.calls == 0
    minutes = [(await reader.activity(records[0].timestamp_ms)).value, (await reader.activity(0)).value]
    assert (minutes[0]["TaskStarted"] > 0, minutes[1]) == (True, {})
    running = {name for name, (one, _) in folded_anew(world).items() if not one.state.ended}
    assert {one.trajectory_id for one in (await reader.still()).value} == running
    assert (await reader.looping()).value == {}
    assert (await reader.in_doubt()).value == []
    assert (await reader.drift()).value.rows == []


async def test_a_key_is_shown_in_its_shape(world: World) -> None:
    append_runs(world, RUNS)
    fold(world, Everything())
    reader = world.reader()
    for key, kind in (("hash", dict), ("words", dict), ("tenants", list), ("ends", list), ("newest:acme", dict)):
        shown = (await shown_of(reader, "everything", key, 3)).value.value
        assert isinstance(shown, kind), key
        assert shown, key
    top = (await shown_of(reader, "everything", "trajectories", 3)).value.value
    assert isinstance(top, list)
    assert len(top) == 3
    assert top == sorted(top, reverse=True)


@pytest.mark.parametrize(
    ("name", "key", "said"),
    [
        ("everything", "nothing", "has no key 'nothing'"),
        ("everything", "newest:acme", "is a json"),
        ("everything", "words", "is no number: no sum"),
        ("nobody", "x", "no projection 'nobody'"),
    ],
)
async def test_what_cannot_be_summed_is_refused(world: World, name: str, key: str, said: str) -> None:
    append_runs(world, 2)
    fold(world, Everything())
    with pytest.raises((InputError, NotFolded), match=said):
        await world.reader().totals(name, key)


@pytest.mark.parametrize("moment", ["before it", "within it"])
def test_an_answer_is_of_one_build_when_readers_are_turned_over_meanwhile(world: World, moment: str) -> None:
    """A rebuild deletes what was live once readers are turned over."""
    append_runs(world, RUNS)
    fold(world)
    client, prefix = world.client, world.settings.prefix
    builds = list[int]()

    def turn_over(at: str) -> None:
        if at != moment or len(builds) > 1:
            return
        for key in list(client.scan_iter(match=f"{prefix}:{{*}}:spend:v1:*")):
            client.rename(key, key.replace(b":v1:", b":v1.1:"))
        client.hset(f"{prefix}:projection:spend", "build:v1", 1)

    def chosen(live: LiveKeys) -> Iterable[int]:
        builds.append(live.keys.build)
        turn_over("before it")
        return all_of(live)

    def look(live: LiveKeys) -> list[str]:
        turn_over("within it")
        return key_names(client, live, "meter")

    answer = looked(client, prefix, Pinned("spend"), look, chosen)

    assert builds == [0, 1]
    assert answer.value
    assert answer.as_of.positions == world.ends()
