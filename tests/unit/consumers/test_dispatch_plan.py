"""What is done next about a dispatched call: the table of the plan, and the row of slots that it reads."""

from __future__ import annotations

import pytest

from tracklog.consumers.dispatch.plan import PROBES_MAX, REISSUES_MAX, Do, Known, Step, next_step
from tracklog.consumers.dispatch.slots import EMPTY, Row, Slot, entered
from tracklog.schemas.codec import LedgerRecord
from tracklog.schemas.envelope import LedgerEnvelope
from tracklog.schemas.events import ToolIntent
from tracklog.schemas.ledger import Attempt, Done, Expired, LedgerBody, Pending
from tracklog.schemas.values import Body, Effect, Place, ResultStatus

NOT_AFTER, GRACE = 1_000, 100
TTL_MS = 5
"""5,000 microseconds."""
ME, OTHER = b"m" * 16, b"o" * 16


def intent(effect: Effect) -> ToolIntent:
    return ToolIntent(
        call_id="c",
        tool="t",
        arguments=Body.of("{}"),
        effect=effect,
        idempotency_key="key",
        key_ttl_ms=TTL_MS if effect is Effect.IDEMPOTENT else None,
        not_after=NOT_AFTER,
        place=Place.DISPATCH,
    )


def at(now_us: int, **more: object) -> Known:
    return Known(latest_us=now_us, earliest_us=now_us, grace_us=GRACE, **more)  # type: ignore[arg-type]


def tried(until: int = NOT_AFTER) -> Slot:
    return Slot(OTHER, until, 0)


EXPIRED = Slot(OTHER, None, 0)
LATE = NOT_AFTER + GRACE
KEY_LATE = TTL_MS * 1000 + GRACE


@pytest.mark.parametrize(
    ("effect", "row", "known", "step"),
    [
        (Effect.OPAQUE, EMPTY, at(0), Step(Do.BID, 1)),
        (Effect.OPAQUE, EMPTY, at(NOT_AFTER), Step(Do.EXPIRE, 1)),
        (Effect.OPAQUE, EMPTY, at(0, cancelled=True), Step(Do.EXPIRE, 1)),
        (Effect.OPAQUE, EMPTY, at(0, has_tool=False), Step(Do.WAIT, 0, NOT_AFTER)),
        (Effect.OPAQUE, EMPTY, at(0, barred=True), Step(Do.EXPIRE, 1)),
        (Effect.READONLY, EMPTY, at(0, barred=True), Step(Do.EXPIRE, 1)),
        (Effect.OPAQUE, Row((tried(),)), at(0, won=1, barred=True), Step(Do.EXPIRE, 2)),
        (Effect.PROBE, Row((tried(),)), at(LATE, has_probe=True, barred=True), Step(Do.PROBE, 1)),
        (Effect.IDEMPOTENT, Row((tried(),)), at(0, won=1, barred=True), Step(Do.WAIT, 1, KEY_LATE)),
        (Effect.IDEMPOTENT, Row((tried(),)), at(LATE, barred=True), Step(Do.WAIT, 1, KEY_LATE)),
        (Effect.OPAQUE, EMPTY, at(0, paused=True), Step(Do.WAIT, 0, NOT_AFTER)),
        (Effect.OPAQUE, EMPTY, at(NOT_AFTER, paused=True), Step(Do.EXPIRE, 1)),
        (Effect.READONLY, EMPTY, at(0, paused=True), Step(Do.WAIT, 0, NOT_AFTER)),
        (Effect.READONLY, EMPTY, at(NOT_AFTER, paused=True), Step(Do.EXPIRE, 1)),
        (Effect.OPAQUE, Row((tried(),)), at(0, won=1, paused=True), Step(Do.WAIT, 1, NOT_AFTER)),
        (Effect.OPAQUE, Row((tried(),)), at(NOT_AFTER, won=1, paused=True), Step(Do.EXPIRE, 2)),
        (Effect.IDEMPOTENT, Row((tried(),)), at(0, won=1, paused=True), Step(Do.WAIT, 1, NOT_AFTER)),
        (Effect.IDEMPOTENT, Row((tried(),)), at(NOT_AFTER, won=1, paused=True), Step(Do.WAIT, 1, KEY_LATE)),
        (Effect.IDEMPOTENT, Row((tried(),)), at(LATE, paused=True), Step(Do.WAIT, 1, KEY_LATE)),
        (Effect.OPAQUE, Row((tried(),)), at(LATE, paused=True), Step(Do.ASK, 1)),
        (Effect.OPAQUE, Row((tried(),)), at(0, won=1), Step(Do.RUN, 1, NOT_AFTER)),
        (Effect.OPAQUE, Row((tried(),)), at(NOT_AFTER, won=1), Step(Do.EXPIRE, 2)),
        (Effect.OPAQUE, Row((tried(),)), at(0, won=1, cancelled=True), Step(Do.EXPIRE, 2)),
        (Effect.OPAQUE, Row((tried(),)), at(0), Step(Do.WAIT, 1, LATE)),
        (Effect.OPAQUE, Row((tried(),)), at(LATE), Step(Do.ASK, 1)),
        (Effect.OPAQUE, Row((tried(), EXPIRED)), at(0), Step(Do.REPORT_EXPIRED, 2)),
        (Effect.OPAQUE, Row((EXPIRED,)), at(0), Step(Do.REPORT_EXPIRED, 1)),
        (Effect.OPAQUE, Row((tried(),), done=True), at(LATE), Step(Do.NOTHING)),
        (Effect.OPAQUE, Row((tried(),), pending_until=9_000), at(LATE), Step(Do.WAIT, 1, 9_000 + GRACE)),
        (Effect.PROBE, Row((tried(),)), at(LATE - 1, has_probe=True), Step(Do.WAIT, 1, LATE)),
        (Effect.PROBE, Row((tried(),)), at(LATE, has_probe=True), Step(Do.PROBE, 1)),
        (Effect.PROBE, Row((tried(),)), at(LATE, has_probe=True, absent=True), Step(Do.EXPIRE, 2)),
        (Effect.PROBE, Row((tried(),)), at(LATE, has_probe=True, probes=PROBES_MAX), Step(Do.ASK, 1)),
        (Effect.IDEMPOTENT, Row((tried(),)), at(LATE), Step(Do.RUN, 1, TTL_MS * 1000 - GRACE)),
        (Effect.IDEMPOTENT, Row((tried(),)), at(NOT_AFTER, won=1), Step(Do.RUN, 1, TTL_MS * 1000 - GRACE)),
        (Effect.IDEMPOTENT, Row((tried(),)), at(TTL_MS * 1000 - GRACE), Step(Do.WAIT, 1, KEY_LATE)),
        (Effect.IDEMPOTENT, Row((tried(),)), at(0, sends=REISSUES_MAX), Step(Do.WAIT, 1, KEY_LATE)),
        (Effect.IDEMPOTENT, Row((tried(),)), at(KEY_LATE), Step(Do.ASK, 1)),
        (Effect.IDEMPOTENT, Row((tried(),)), at(KEY_LATE, has_probe=True), Step(Do.PROBE, 1)),
    ],
)
def test_the_next_step(effect: Effect, row: Row, known: Known, step: Step) -> None:
    assert next_step(intent(effect), row, known) == step


def test_a_readonly_call_takes_no_slot_and_has_no_deadline() -> None:
    step = next_step(intent(Effect.READONLY), EMPTY, at(LATE))

    assert step.do is Do.RUN
    assert step.until_us > LATE


def test_the_clock_that_is_ahead_forbids_and_the_one_behind_delays() -> None:
    apart = Known(latest_us=NOT_AFTER, earliest_us=0, grace_us=GRACE)

    assert next_step(intent(Effect.OPAQUE), EMPTY, apart).do is Do.EXPIRE
    late = Known(latest_us=LATE, earliest_us=0, grace_us=GRACE)
    assert next_step(intent(Effect.OPAQUE), Row((tried(),)), late).do is Do.WAIT


def entry(slot: int, body: LedgerBody, nonce: bytes = ME) -> LedgerRecord:
    envelope = LedgerEnvelope(
        trajectory_id="t", tenant="d", call_id="c", intent_hash=b"h" * 32, slot=slot, nonce=nonce, recorded_at=0
    )
    return LedgerRecord(type(body).__name__, envelope, body, b"x" * 32, b"f" * 8)


def folded(*entries: LedgerRecord) -> Row:
    row = EMPTY
    for number, one in enumerate(entries):
        row = entered(row, one, number)
    return row


def test_the_first_of_a_slot_holds_it() -> None:
    first, second = (entry(1, Attempt(dispatcher="d", not_after=5), nonce) for nonce in (OTHER, ME))

    assert folded(first, second).holder(1) == OTHER
    assert folded(first, second, second) == folded(first)


@pytest.mark.parametrize(
    "entries",
    [
        (entry(2, Attempt(dispatcher="d", not_after=5)),),
        (entry(1, Expired(dispatcher="d")), entry(2, Attempt(dispatcher="d", not_after=5))),
        (
            entry(1, Attempt(dispatcher="d", not_after=5)),
            entry(1, Done(dispatcher="d", status=ResultStatus.OK)),
            entry(2, Attempt(dispatcher="d", not_after=5)),
        ),
    ],
    ids=["out of turn", "behind an expired slot", "behind a done"],
)
def test_what_comes_out_of_turn_takes_no_slot(entries: tuple[LedgerRecord, ...]) -> None:
    assert folded(*entries).slots == folded(*entries[:-1]).slots


def test_a_call_that_is_pending_is_so_until_its_next_slot() -> None:
    attempt = entry(1, Attempt(dispatcher="d", not_after=5))
    pending = folded(attempt, entry(1, Pending(dispatcher="d", until=99)))

    assert pending.pending_until == 99
    assert entered(pending, entry(2, Expired(dispatcher="d")), 0).pending_until is None


def test_an_entry_whose_bytes_cannot_be_believed_is_nobodys() -> None:
    bad = entry(1, Attempt(dispatcher="d", not_after=5))._replace(problem="another hash")

    assert folded(bad) == EMPTY


@pytest.mark.parametrize("effect", [Effect.IDEMPOTENT, Effect.PROBE, Effect.OPAQUE])
def test_an_entry_of_a_version_not_known_here_may_be_an_attempt_so_none_is_begun_beside_it(effect: Effect) -> None:
    # given an entry that only a newer dispatcher reads, which took the slot, and one that comes too late for it
    unread = entry(1, Attempt(dispatcher="d", not_after=NOT_AFTER), OTHER)._replace(body=None)
    row = folded(unread, entry(1, Attempt(dispatcher="d", not_after=NOT_AFTER)))

    # then nobody of this version holds the slot; it waits for the others, then asks a person
    assert row.holder(1) is None
    assert next_step(intent(effect), row, at(0)).do is Do.WAIT
    assert next_step(intent(effect), row, at(LATE)).do is Do.ASK
    assert folded(unread, entry(1, Done(dispatcher="d", status=ResultStatus.OK))).done, "what is over is over"
