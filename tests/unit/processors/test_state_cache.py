from __future__ import annotations

from tracklog.processors.state_cache import StateCache


def test_the_least_recently_put_leaves_first() -> None:
    cache: StateCache[str] = StateCache(2)
    cache.put(0, "a", "A")
    cache.put(0, "b", "B")
    cache.put(0, "a", "A2")

    cache.put(0, "c", "C")

    assert [cache.get(0, name) for name in "abc"] == ["A2", None, "C"]
    assert len(cache) == 2


def test_the_same_id_in_two_partitions_is_two_trajectories() -> None:
    cache: StateCache[str] = StateCache(4)
    cache.put(0, "a", "zero")
    cache.put(1, "a", "one")

    cache.forget(0)

    assert [cache.get(p, "a") for p in (0, 1)] == [None, "one"]
