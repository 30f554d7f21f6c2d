"""Entries in the attempt ledger, and reading it back."""

from __future__ import annotations

import asyncio

from tests.support.memory_logs import memory_log
from tracklog.consumers.dispatch.ledger import Ledger
from tracklog.infra.clock import SystemClock
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
