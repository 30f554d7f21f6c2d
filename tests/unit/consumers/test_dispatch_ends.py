"""Ends of partitions, asked for by many at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection

import pytest

from tests.support.memory_logs import memory_log
from tracklog.consumers.dispatch.ends import Ends
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import append_and_wait
from tracklog.schemas.errors import LogUnavailable
from tracklog.schemas.topics import Topics

TOPIC = Topics().events


class SlowEnds:
    """Hands each question on when it is told to."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.asked: list[set[int]] = []
        self.away = False
        self.under_way = threading.Semaphore(0)
        self.goes_on = threading.Semaphore(0)

    def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        self.asked.append(set(partitions))
        found = self._log.ends(topic, partitions)
        self.under_way.release()
        assert self.goes_on.acquire(timeout=10)
        if self.away:
            raise LogUnavailable("nobody answers")
        return found

    async def begun(self) -> None:
        assert await asyncio.to_thread(self.under_way.acquire, True, 10)


async def test_who_asks_while_a_request_is_under_way_gets_the_answer_of_a_later_one() -> None:
    # given a question that was asked when the partition was empty, and is not answered yet
    log = memory_log(3)
    slow = SlowEnds(log)
    ends = Ends(slow, TOPIC)  # type: ignore[arg-type]
    first = asyncio.create_task(ends.of(0))
    await slow.begun()
    # when records come, and others ask
    where = append_and_wait(log, TOPIC, b"key", b"v", timeout_s=10).partition
    later = [asyncio.create_task(ends.of(one)) for one in (where, where, (where + 1) % 3)]
    await asyncio.sleep(0)
    slow.goes_on.release(2)
    # then they have what is true after they asked, by one request for all
    assert await asyncio.wait_for(first, 10) == 0
    assert await asyncio.wait_for(asyncio.gather(*later), 10) == [1, 1, 0]
    assert slow.asked == [{0}, {where, (where + 1) % 3}]
    log.close()


async def test_one_that_is_cut_off_leaves_the_question_to_those_who_wait() -> None:
    log = memory_log(1)
    slow = SlowEnds(log)
    ends = Ends(slow, TOPIC)  # type: ignore[arg-type]
    first = asyncio.create_task(ends.of(0))
    await slow.begun()
    second = asyncio.create_task(ends.of(0))
    await asyncio.sleep(0)
    first.cancel()
    slow.goes_on.release(2)
    assert await asyncio.wait_for(second, 10) == 0
    assert not ends._asked
    assert not ends._answers
    log.close()


async def test_a_log_that_is_away_is_heard_of_by_all_who_asked_together() -> None:
    log = memory_log(2)
    slow = SlowEnds(log)
    slow.away = True
    ends = Ends(slow, TOPIC)  # type: ignore[arg-type]
    asked = [asyncio.create_task(ends.of(one)) for one in (0, 1, 1)]
    slow.goes_on.release(3)
    for one in asked:
        with pytest.raises(LogUnavailable):
            await asyncio.wait_for(one, 10)
    assert len(slow.asked) <= 2
    log.close()
