"""What the store promises: one guarded step per batch, every write shape, bounds. On each server found here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import missing_service
from tests.support.projecting import stored_under
from tracklog.infra.clock import SeededEntropy
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.infra.stack.valkey_server import ValkeyServer, find_valkey
from tracklog.processors.memory_store import MemoryStore
from tracklog.processors.redis_store import RedisStore
from tracklog.processors.store import Checkpoint
from tracklog.processors.store_keys import StoreKeys
from tracklog.processors.writes import (
    Add,
    Clear,
    Extend,
    Keep,
    Push,
    PutJson,
    Rank,
    Remove,
    SetFields,
    Shelf,
    Unrank,
    Unset,
    Write,
)
from tracklog.schemas.errors import StackError, StoreConflict

FAR_MS = 4_000_000_000_000
SERVERS = ("valkey", *(name for name in ("redis-server",) if shutil.which(name) is not None))


@pytest.fixture(scope="module", params=SERVERS)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisClient]:
    """`valkey` is the one of the wheel; `redis-server` what has that name on the PATH, if any."""
    server = ValkeyServer(tmp_path_factory.mktemp("store"), persistence="none")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "redis-server":
            found = Path(str(shutil.which("redis-server")))
            patch.setattr("tracklog.infra.stack.valkey_server.find_valkey", lambda: found)
        else:
            _require_valkey()
        server.start()
    try:
        yield connect(server.url, timeout_s=5)
    finally:
        server.kill()


def _require_valkey() -> None:
    try:
        find_valkey()
    except StackError as error:
        missing_service(str(error))


@pytest.fixture
def store(client: RedisClient) -> RedisStore:
    client.flushdb()
    return make_store(client)


def make_store(client: RedisClient, *, version: int = 1, seed: int = 1) -> RedisStore:
    keys = StoreKeys("pre", "things", version)
    return RedisStore(client, keys, source="cluster/topic", entropy=SeededEntropy(seed))


def content(client: RedisClient, partition: int = 3, version: int = 1) -> dict[str, object]:
    found = stored_under(client, StoreKeys("pre", "things", version).base(partition))
    found.pop("checkpoint", None)
    return found


ALL_SHAPES: list[Write] = [
    SetFields("t:a", {"state": b"\x00\xff", "n": 1}),
    Rank(["by:time", "by:status:new"], "a", 5),
    Rank(["by:time"], "b", 6),
    Unrank(["by:time"], "b"),
    Extend("offsets:a", b"\x01"),
    Keep("log:a", "log-bytes", "a", [b"one", b"two"], 10, 100, FAR_MS, Shelf("logs:t", "totals", "t"), 5, 0),
]


SHELF = Shelf("logs:t", "totals", "t")


def keeping(
    member: str,
    entries: list[bytes],
    count_max: int,
    bytes_max: int,
    expire_at_ms: int,
    grown_ms: int = 5,
    most: int = 0,
) -> Keep:
    return Keep(f"l:{member}", "s", member, entries, count_max, bytes_max, expire_at_ms, SHELF, grown_ms, most)


def test_a_partition_never_written_has_no_checkpoint(store: RedisStore) -> None:
    assert store.checkpoint(0) is None


def test_a_batch_writes_every_shape_and_moves_the_position_with_it(client: RedisClient, store: RedisStore) -> None:
    written = store.commit(3, None, 7, ALL_SHAPES)

    assert store.checkpoint(3) == written == Checkpoint(written.incarnation, 7, "cluster/topic")
    assert content(client) == {
        "t:a": {b"state": b"\x00\xff", b"n": b"1"},
        "by:time": {b"a": 5.0},
        "by:status:new": {b"a": 5.0},
        "offsets:a": b"\x01",
        "log:a": [b"one", b"two"],
        "log-bytes": {b"a": b"6"},
        "logs:t": {b"a": 5.0},
        "totals": {b"t": b"6"},
    }


def test_position_0_is_stored_like_any_other(store: RedisStore) -> None:
    written = store.commit(0, None, 0, [])

    assert store.checkpoint(0) == written
    assert written.position == 0
    assert store.commit(0, written, 1, []).position == 1


def test_the_same_batch_again_is_a_conflict_and_changes_nothing(client: RedisClient, store: RedisStore) -> None:
    first = store.commit(3, None, 7, [Extend("x", b"1")])
    store.commit(3, first, 9, [Extend("x", b"2")])

    with pytest.raises(StoreConflict):
        store.commit(3, first, 9, [Extend("x", b"2")])

    assert content(client) == {"x": b"12"}


def test_steps_under_way_are_stored_though_one_among_them_is_refused(client: RedisClient, store: RedisStore) -> None:
    held = [store.commit(partition, None, 1, []) for partition in range(4)]
    store.commit(1, held[1], 2, [])

    sent = [store.send(n, held[n], 5, [Extend("x", b"%d" % n)]) for n in range(4)]

    assert sent[3]().position == 5, "whoever is asked first waits for those before it"
    assert [sent[n]().position for n in (0, 2)] == [5, 5]
    with pytest.raises(StoreConflict, match="offset 2"):
        sent[1]()
    assert [content(client, n) for n in range(4)] == [{"x": b"0"}, {}, {"x": b"2"}, {"x": b"3"}]


def test_steps_under_way_survive_that_the_server_forgets_its_scripts(client: RedisClient, store: RedisStore) -> None:
    first = store.commit(3, None, 7, [])
    client.script_flush()

    sent = store.send(3, first, 9, [Extend("x", b"1")])

    assert sent().position == 9
    assert content(client) == {"x": b"1"}


def test_of_steps_whose_connection_breaks_each_is_stored_once_or_refused(
    client: RedisClient, store: RedisStore
) -> None:
    held = [store.commit(partition, None, 1, []) for partition in range(8)]
    sent = [store.send(n, held[n], 2, [Extend("x", b"%d" % n)]) for n in range(4)]
    for one in client.client_list():
        if one["cmd"] == "evalsha":
            client.client_kill_filter(_id=one["id"])
    sent += [store.send(n, held[n], 2, [Extend("x", b"%d" % n)]) for n in range(4, 8)]

    for stored in sent:
        try:
            stored()
        except StoreConflict:  # it was stored, and its answer lost
            continue

    assert [store.checkpoint(n) for n in range(8)] == [one._replace(position=2) for one in held]
    assert [content(client, n) for n in range(8)] == [{"x": b"%d" % n} for n in range(8)]


@pytest.mark.parametrize("expected", [None, Checkpoint("another", 7, "cluster/topic")])
def test_a_writer_with_another_belief_writes_nothing(
    client: RedisClient, store: RedisStore, expected: Checkpoint | None
) -> None:
    written = store.commit(3, None, 7, [])

    with pytest.raises(StoreConflict):
        store.commit(3, expected, 8, ALL_SHAPES)

    assert store.checkpoint(3) == written
    assert content(client) == {}


def test_a_wiped_store_is_a_conflict_and_its_next_life_another_one(client: RedisClient, store: RedisStore) -> None:
    written = store.commit(3, None, 7, [])
    client.flushdb()

    with pytest.raises(StoreConflict, match="nothing"):
        store.commit(3, written, 9, ALL_SHAPES)

    again = store.commit(3, None, 7, [])
    assert again.incarnation != written.incarnation
    with pytest.raises(StoreConflict):
        store.commit(3, written, 9, [])


def test_states_newer_than_the_checkpoint_are_not_given_out(store: RedisStore) -> None:
    first = store.commit(3, None, 7, [SetFields("t:a", {"state": "1"})])
    assert store.hashes(3, first, ["t:a", "t:nobody"]) == [{b"state": b"1"}, {}]
    store.commit(3, first, 8, [SetFields("t:a", {"state": "2"})])

    with pytest.raises(StoreConflict):
        store.hashes(3, first, ["t:a"])


def test_partitions_and_versions_are_apart(client: RedisClient, store: RedisStore) -> None:
    store.commit(3, None, 1, [Extend("x", b"3")])
    store.commit(4, None, 1, [Extend("x", b"4")])
    make_store(client, version=2).commit(3, None, 1, [Extend("x", b"v2")])

    assert [content(client, 3), content(client, 4), content(client, 3, version=2)] == [
        {"x": b"3"},
        {"x": b"4"},
        {"x": b"v2"},
    ]


def test_a_kept_list_holds_the_newest_by_count(client: RedisClient, store: RedisStore) -> None:
    at = store.commit(3, None, 1, [keeping("a", [b"1", b"2", b"3"], 2, 100, FAR_MS)])
    assert content(client)["l:a"] == [b"2", b"3"]

    store.commit(3, at, 2, [keeping("a", [b"4"], 2, 100, FAR_MS)])

    assert content(client)["l:a"] == [b"3", b"4"]


@pytest.mark.parametrize(("bytes_max", "kept"), [(9, [b"aaa", b"bbb", b"ccc"]), (8, [b"bbb", b"ccc"]), (2, [])])
def test_a_kept_list_holds_the_newest_by_bytes(
    client: RedisClient, store: RedisStore, bytes_max: int, kept: list[bytes]
) -> None:
    at = store.commit(3, None, 1, [keeping("a", [b"aaa"], 10, bytes_max, FAR_MS)])

    store.commit(3, at, 2, [keeping("a", [b"bbb", b"ccc"], 10, bytes_max, FAR_MS)])

    assert content(client).get("l:a", []) == kept


def test_a_kept_list_leaves_when_it_is_too_old_and_counts_anew_afterwards(
    client: RedisClient, store: RedisStore
) -> None:
    at = store.commit(3, None, 1, [keeping("a", [b"old"], 10, 5, 1_000)])
    assert "l:a" not in content(client)

    store.commit(3, at, 2, [keeping("a", [b"new"], 10, 5, FAR_MS)])

    assert content(client)["l:a"] == [b"new"]


def test_of_lists_that_share_a_bound_those_leave_that_last_grew_the_longest_ago(
    client: RedisClient, store: RedisStore
) -> None:
    at = store.commit(3, None, 1, [keeping(one, [b"12345"], 9, 99, FAR_MS, n, 15) for n, one in enumerate("abc")])
    assert content(client)["totals"] == {b"t": b"15"}

    at = store.commit(3, at, 2, [keeping("a", [b"67"], 9, 99, FAR_MS, 3, 15)])

    assert content(client) == {
        "l:a": [b"12345", b"67"],
        "l:c": [b"12345"],
        "s": {b"a": b"7", b"c": b"5"},
        "logs:t": {b"a": 3.0, b"c": 2.0},
        "totals": {b"t": b"12"},
    }
    at = store.commit(3, at, 3, [Clear("l:c", "s", "c", SHELF), Clear("l:none", "s", "none", SHELF)])
    assert content(client)["totals"] == {b"t": b"7"}
    store.commit(3, at, 4, [keeping("d", [b"x" * 16], 9, 99, FAR_MS, 9, 15)])
    assert content(client) == {}, "one that is larger than all may be leaves as well"


def test_what_is_counted_of_lists_that_share_a_bound_is_what_there_is(client: RedisClient, store: RedisStore) -> None:
    drawn, at = SeededEntropy(7), None
    for step in range(60):
        which, size, several, few = drawn.nonce()[:4]
        entries = [b"x" * (1 + size % 8)] * (1 + several % 2)
        write = keeping("abcdef"[which % 6], entries, 1 + few % 3, 12, FAR_MS, step, 25)
        cleared = Clear("l:b", "s", "b", SHELF)
        at = store.commit(3, at, step, [write, cleared] if step % 7 == 0 else [write])

        found: Any = content(client)
        lists = {name[2:].encode(): sum(map(len, found[name])) for name in found if name.startswith("l:")}
        assert {name: int(size) for name, size in found["s"].items() if size != b"0"} == lists
        assert int(found["totals"][b"t"]) == sum(lists.values()) <= 25


def test_a_list_from_before_there_were_bounds_of_several_is_counted_when_it_grows(
    client: RedisClient, store: RedisStore
) -> None:
    base = store.keys.base(3)
    client.rpush(base + "l:a", b"123")
    client.hset(base + "s", "a", 3)

    store.commit(3, None, 1, [keeping("a", [b"45"], 9, 99, FAR_MS)])

    assert content(client)["totals"] == {b"t": b"5"}


def test_a_batch_may_be_longer_than_lua_can_unpack(client: RedisClient, store: RedisStore) -> None:
    entries = [b"%d" % n for n in range(20_000)]
    fields: dict[str, str | bytes | int] = {f"f{n}": n for n in range(9_000)}

    store.commit(3, None, 1, [keeping("a", entries, 30_000, 10**9, FAR_MS), SetFields("h", fields)])

    assert content(client)["l:a"] == entries
    assert client.hlen(StoreKeys("pre", "things", 1).key(3, "h")) == 9_000


def test_dropping_a_partition_leaves_its_neighbours(client: RedisClient, store: RedisStore) -> None:
    store.commit(3, None, 7, ALL_SHAPES)
    store.commit(4, None, 7, ALL_SHAPES)

    assert store.drop(3) == 9

    assert store.checkpoint(3) is None
    assert content(client, 3) == {}
    assert len(content(client, 4)) == 8


def test_readers_are_pointed_to_the_first_version_until_it_is_replaced(client: RedisClient, store: RedisStore) -> None:
    second = make_store(client, version=2)
    store.publish(12)
    second.publish(12)
    assert client.hgetall("pre:projection:things") == {b"version": b"1", b"partitions": b"12"}

    second.publish(12, replace=True)

    assert client.hgetall("pre:projection:things") == {b"version": b"2", b"partitions": b"12", b"build:v2": b"0"}


PROCESSORS: list[list[Write]] = [
    [SetFields("hash", {"a": b"\x00", "n": 1}), Add("sums", {"x": 3}), PutJson("json:a", {"b": [1, None]})],
    [Rank(["set", "set:b"], "m", -5), Rank(["set"], "k", 2**53), Push("stream", 41, {"event": "a", "n": 0})],
    [Push("stream", 41, {"event": "b"}), Push("stream", 40, {"event": "late"}, 2), Push("stream", 43, {"event": "c"})],
    [Unset("hash", ["a", "nothing"]), Add("sums", {"x": -1, "y": 2}), Unrank(["set", "none"], "m")],
    [Unset("sums", ["x"]), Unrank(["set:b"], "m"), Remove(["json:a", "nowhere"]), PutJson("json:b", 1.5)],
]
"""Batches of everything that a processor may write."""


def test_a_store_in_memory_holds_what_redis_holds_after_the_same_batches(store: RedisStore) -> None:
    memory = MemoryStore(store.keys, source=store.source)
    left, held = None, None
    for position, batch in enumerate(PROCESSORS):
        left, held = store.commit(3, left, position, batch), memory.commit(3, held, position, batch)
        assert list(store.content(3)) == list(memory.content(3)), position
    for most in (None, 2**53, 1):
        found = store.ranked(3, left, "set", 2, score_max=most)
        assert memory.ranked(3, held, "set", 2, score_max=most) == found
    assert memory.hashes(3, held, ["hash", "none"]) == store.hashes(3, left, ["hash", "none"])
