"""Opening a trajectory reads its own stretch of the log: with what is found no different from a scan of everything."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.chains import Chain, append_all
from tests.support.memory_logs import memory_log
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.port import Log
from tracklog.producers import history, spans, view
from tracklog.producers.history import Histories, read_history
from tracklog.producers.spans import Index, Places, Span, joined
from tracklog.producers.view import LogView
from tracklog.producers.worker_partitions import standings
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Driver

EVENTS = Topics().events


def step(log: Log, chance: random.Random, chains: list[Chain]) -> None:
    """One more claim of somebody, new or known, accepted or lost."""
    if chance.random() < 0.2:
        chains.append(Chain(f"t{len(chains)}", driver=Driver.WORKER))
    chain = chance.choice(chains)
    lost = Chain(chain.trajectory_id, driver=Driver.WORKER)
    lost.seq, lost.epoch, lost.hash = chain.seq, chain.epoch, bytes(32)
    append_all(log, EVENTS, [lost.claim("lost") if chance.random() < 0.3 and chain.seq else chain.claim()])


def indexed(log: Log) -> tuple[Index, Mapping[str, Places]]:
    found = standings(log, EVENTS, 0, grace_us=0)
    return Index({name.encode(): places for name, places in found.places.items()}, found.end), found.places


@pytest.mark.parametrize("seed", range(12))
async def test_what_a_view_finds_by_its_index_is_what_the_log_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a view of a log at which others write, and a partition that is indexed and given up again
    monkeypatch.setattr(spans, "JOINED_WITHIN", 1)
    log, chance = memory_log(1), random.Random(seed)
    reading = LogView(log, EVENTS, clock=SystemClock(), window=64, timeout_s=10.0)
    chains = [Chain("t0", driver=Driver.WORKER)]
    late: list[Index] = []
    for _ in range(150):
        match chance.choice(("step", "step", "step", "scan", "index", "drop", "open", "open", "since")):
            case "step":
                step(log, chance, chains)
            case "scan":
                late.append(indexed(log)[0])
            case "index" if late:
                reading.index(0, late.pop())  # made some time ago, as by the thread of a partition loop
            case "drop" if chance.random() < 0.2:
                reading.index(0, None)
            case "open" | "since" as how:
                name = chance.choice(chains).trajectory_id
                found = indexed(log)[1].get(name)
                if how == "since" and found is not None:
                    reading.starts_at(name, found[0].first)
                # when one of its trajectories is opened
                state = (await reading.refresh([name]))[name].state
                # then it is as the whole log says
                assert state.head == read_history(log, EVENTS, name)[0].head
                reading.forget(name)
            case _:
                pass
    await reading.close()
    log.close()


async def test_opening_one_of_many_does_not_read_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a long partition that was indexed, and a trajectory at its beginning
    monkeypatch.setattr(spans, "JOINED_WITHIN", 1)
    log = memory_log(1)
    chains = [Chain(f"t{number}", driver=Driver.WORKER) for number in range(100)]
    for chain in chains:
        append_all(log, EVENTS, [chain.claim(), chain.claim()])
    reading = LogView(log, EVENTS, clock=SystemClock(), window=64, timeout_s=10.0)
    reading.index(0, indexed(log)[0])
    read = watched(monkeypatch, view)
    # when it goes on, and is opened again each time
    for wanted in ([0, 1], [0, 1, 200], [0, 1, 200, 201]):
        read.clear()
        await reading.refresh(["t0"])
        reading.forget("t0")
        # then its own stretches were read
        assert read == wanted
        append_all(log, EVENTS, [chains[0].claim()])
        await reading.refresh(["t1"])
    await reading.close()
    log.close()


def watched(monkeypatch: pytest.MonkeyPatch, module: Any) -> list[int]:
    """The offsets that are read by ranges."""
    read: list[int] = []
    ranged = module.read_range

    def counted(*arguments: Any, **options: Any) -> Any:
        for record in ranged(*arguments, **options):
            read.append(record.offset)
            yield record

    monkeypatch.setattr(module, "read_range", counted)
    return read


def test_spans_that_are_near_one_another_are_read_as_one() -> None:
    found = list(joined([Span(5_000, 5_010), Span(0, 10), Span(1_000, 1_001), Span(7, 6), Span(5_002, 5_003)]))
    assert found == [Span(0, 1_001), Span(5_000, 5_010)]


async def test_histories_that_are_asked_for_together_are_read_by_one_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    # given many that are asked for at once
    log = memory_log(1)
    for number in range(50):
        append_all(log, EVENTS, [Chain(f"t{number}").claim()])
    read = watched(monkeypatch, history)
    # when they are read
    histories = Histories(log, EVENTS)
    found = await asyncio.gather(*(histories.read(f"t{number}") for number in range(50)))
    # then each has its own, of two scans at most: the first one's, and everybody else's
    assert [state.trajectory_id for state, _ in found] == [f"t{number}" for number in range(50)]
    assert all(state.head.epoch == 1 for state, _ in found)
    assert len(read) <= 100
    log.close()
