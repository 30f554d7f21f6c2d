"""What a worker reads when it starts, and when it takes a trajectory up."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.sessions import TIMING, ScriptedModel, says
from tests.support.working import Works, agent_of
from tests.support.writing import read_accepted
from tracklog.consumers.cli.app import app
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.memory import MemoryLog
from tracklog.infra.log.memory_store import MemoryReader, MemoryStore
from tracklog.infra.log.partitioner import partition_of
from tracklog.producers.tools import ToolSet, tool
from tracklog.schemas.errors import InvalidTool
from tracklog.schemas.topics import Topics

EVENTS = Topics().events
SLOW_SHOP = """
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent

@tool
def book(what: str) -> str:
    return what

shop = Agent("shop", None, ToolSet.of(book))
"""


class WatchedLog(MemoryLog):
    """Keeps from where the events were read."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store, now_ms=lambda: SystemClock().now_us() // 1000)
        self.read_from: list[tuple[int, int]] = []

    def reader(self, topic: str, starts: Mapping[int, int], *, follows: bool = False) -> MemoryReader:
        if topic == EVENTS:
            self.read_from += starts.items()
        return super().reader(topic, starts)


async def test_a_worker_reads_a_partition_once_and_a_trajectory_from_its_own_beginning() -> None:
    works, model = Works(), ScriptedModel(says("which day?"), says("done"))
    ids = [await works.client.submit("traveller", "book a trip", id=f"old-{n}") for n in range(8)]
    async with works.worker(agent_of(model, talks_until="STOP")):
        await works.until(lambda: all(works.parked(one) == "message" for one in ids))
    old = max(ids, key=lambda one: first_offset(works, one))
    ends = {p: works.log.bounds(EVENTS, p).end for p in range(2)}
    works.new_log = lambda: watched  # type: ignore[method-assign]
    watched = WatchedLog(works.store)

    async with works.worker(agent_of(model, talks_until="STOP")):
        for one in (old, "new"):
            await works.client.submit("traveller", "book a trip", id=one)
            await works.client.send(one, "STOP")
        results = [await works.client.result(one, wait_s=10) for one in (old, "new")]

    assert [result.turns for result in results] == [1, 1]
    assert first_offset(works, old) > 0
    again = [(p, offset) for p, offset in watched.read_from if 0 < offset < ends[p]]
    assert sorted(one for one in watched.read_from if one[1] == 0) == [(0, 0), (1, 0)]
    assert set(again) == {(partition_of(old.encode(), 2), first_offset(works, old))}


async def test_a_worker_with_a_tool_that_it_could_not_settle_does_not_start() -> None:
    works = Works()

    @tool(effect="opaque", timeout_s=TIMING.grace_s)
    def slow(what: str) -> str:
        return what

    with pytest.raises(InvalidTool, match=r"'slow' may take 70 s, the grace is 70 s.*raise worker\.grace_s"):
        async with works.worker(agent_of(ScriptedModel(says("done")), ToolSet.of(slow))):
            pass


def test_what_keeps_a_worker_from_starting_is_said_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_shop.py").write_text(SLOW_SHOP)
    monkeypatch.syspath_prepend(str(tmp_path))
    runner = CliRunner(env={"TRACKLOG_HOME": str(tmp_path), "TRACKLOG_WORKER__GRACE_S": "15"})

    result = runner.invoke(app, ["worker", "slow_shop:shop"])

    assert result.exit_code == 2, result.output
    assert "raise worker.grace_s above the time-out" in " ".join(result.stderr.split())


def first_offset(works: Works, trajectory_id: str) -> int:
    return read_accepted(works.log, trajectory_id, raw=True)[0].offset
