"""Entries in the attempt ledger, and reading it back."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from tests.support.memory_logs import make_topics, memory_log
from tracklog.consumers.dispatch.ledger import Ledger
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.memory import MemoryLog, MemoryStore
from tracklog.infra.log.partitioner import partition_of
from tracklog.schemas.envelope import LedgerEnvelope
from tracklog.schemas.ledger import Attempt
from tracklog.schemas.topics import Topics

HASH = bytes(32)


async def test_a_bid_for_a_call_that_got_its_result_meanwhile_ends_and_is_entered_once() -> None:
    # given a call that was settled while somebody was about to bid for it
    log, topic = memory_log(1), Topics().attempts
    ledger = Ledger(log, topic, clock=SystemClock())
    ledger.own(0, {}, 0)
    ledger.settled(0, HASH)
    envelope = LedgerEnvelope(
        trajectory_id="t", tenant="default", call_id="c", intent_hash=HASH, slot=1, nonce=bytes(16), recorded_at=1
    )
    # when the bid is made
    row = await asyncio.wait_for(ledger.enter(0, envelope, Attempt(dispatcher="d", not_after=2)), 10)
    # then the call is over, and the ledger is not written full
    assert row.done
    assert partition_of(b"t", 1) == 0
    assert log.bounds(topic, 0).end == 1
    await ledger.close()
    log.close()


class WatchedLog(MemoryLog):
    """Counts how often ends were asked for."""

    asked = 0

    def ends(self, topic: str, partitions: Collection[int]) -> dict[int, int]:
        self.asked += bool(partitions)
        return super().ends(topic, partitions)


async def test_a_bid_is_read_back_up_to_where_it_lies_and_a_loser_sees_who_was_first() -> None:
    # given somebody else's bid for the slot, which nobody here has read
    store, topic = MemoryStore(), Topics().attempts
    logs = [WatchedLog(store, now_ms=lambda: 1) for _ in range(2)]
    make_topics(logs[0], "tracklog", 1)
    first, second = (Ledger(log, topic, clock=SystemClock()) for log in logs)
    envelopes = [
        LedgerEnvelope(
            trajectory_id="t", tenant="default", call_id="c", intent_hash=HASH, slot=1, nonce=nonce, recorded_at=1
        )
        for nonce in (bytes(16), bytes([1]) * 16)
    ]
    for one in (first, second):
        one.own(0, {}, 0)
    await first.enter(0, envelopes[0], Attempt(dispatcher="d", not_after=2))
    # when one bids
    row = await asyncio.wait_for(second.enter(0, envelopes[1], Attempt(dispatcher="e", not_after=2)), 10)
    # then it has read whose the slot is, and asked nobody where the ledger ends
    assert row.holder(1) == bytes(16)
    assert logs[1].asked == 0
    assert (await second.row(0, HASH)) == row
    assert logs[1].asked == 1
    for one, log in zip((first, second), logs, strict=True):
        await one.close()
        log.close()
