"""Posting to a trajectory's inbox, and reading what came."""

from __future__ import annotations

import pytest

from tests.support.memory_logs import memory_log
from tracklog.infra.clock import ManualClock, SystemClock
from tracklog.infra.log.memory import Fault, MemoryLog
from tracklog.infra.log.port import Bounds, Log
from tracklog.producers.mailbox import LogMailbox
from tracklog.producers.post import Poster
from tracklog.schemas.inbox import Cancel, Message
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Body, InboxId, Role

TOPICS = Topics()


def said(text: str) -> Message:
    return Message(peer="ada", role=Role.USER, message=Body.of(text))


def mailbox(log: Log, trajectory_id: str = "trip-1") -> LogMailbox:
    return LogMailbox(log, TOPICS.inbox, trajectory_id, clock=SystemClock())


async def test_what_was_posted_is_read_in_order_by_its_trajectory_alone() -> None:
    log = memory_log(1)
    poster = Poster(log, TOPICS, clock=ManualClock())
    for seq, text in enumerate(("one", "two")):
        await poster.post("trip-1", said(text), inbox_id=InboxId(source="ada", seq=seq))
    await poster.post("trip-2", Cancel(by="ada"), inbox_id=InboxId(source="ada", seq=0))

    box = mailbox(log)
    await box.look()

    assert [one.body for one in box.waiting()] == [said("one"), said("two")]
    assert [one.position for one in box.waiting()] == [0, 1]
    box.took(box.waiting()[0])
    await box.look()
    assert [one.inbox_id.seq for one in box.waiting()] == [1]


async def test_a_look_asks_the_log_for_its_bounds_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = memory_log(1)
    asked: list[int] = []
    bounds = log.bounds

    def counted(topic: str, partition: int) -> Bounds:
        asked.append(partition)
        return bounds(topic, partition)

    monkeypatch.setattr(log, "bounds", counted)
    box = mailbox(log)

    for looks in (1, 2):
        await box.look()
        assert len(asked) == looks


async def test_a_wait_ends_when_something_comes_and_at_its_bound_when_nothing_does() -> None:
    log = memory_log(1)
    box = mailbox(log)

    assert not await box.wait(0.0)
    await Poster(log, TOPICS, clock=ManualClock()).post("trip-1", said("x"), inbox_id=InboxId(source="ada", seq=0))
    assert await box.wait(10.0)
    assert len(box.waiting()) == 1


async def test_a_record_of_which_nobody_knows_is_sent_again_as_the_same() -> None:
    log = memory_log(1)
    assert isinstance(log, MemoryLog)
    faults = iter([Fault.STORE_UNKNOWN, Fault.DROP_UNKNOWN, Fault.REFUSE, Fault.QUEUE_FULL])
    log.faults = lambda *_: next(faults, None)

    await Poster(log, TOPICS, clock=ManualClock()).post("trip-1", said("x"), inbox_id=InboxId(source="ada", seq=0))

    box = mailbox(log)
    await box.look()
    assert {one.inbox_id for one in box.waiting()} == {InboxId(source="ada", seq=0)}
    assert len({one.hash for one in box.waiting()}) == 1
