"""An audit names the exact event that is wrong, and calls harmless what a healthy log holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pytest

from tests.support.chains import Chain, Made, run_of
from tests.support.tampering import Records, decoded, dropped, edited, flipped, inserted, swapped
from tracklog.schemas import events as ev
from tracklog.schemas.audit import Audit
from tracklog.schemas.audit_report import FaultKind, Report
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import State
from tracklog.schemas.values import (
    Body,
    Driver,
    Effect,
    Ending,
    Place,
    ResultStatus,
    Settled,
    TargetKind,
)

ID = "run-1"


def imported() -> Chain:
    """A whole imported run, ended and released."""
    chain = run_of(ID, turns=3)
    chain.add(ev.OwnershipReleased(owner="owner", nonce=bytes(16)))
    return chain


def living() -> Chain:
    """A run with three owners: a release, a crash, live calls, an ending, and an annotation afterwards."""
    chain = run_of(ID, turns=1, ending=None)
    chain.add(ev.OwnershipReleased(owner="owner", nonce=bytes(16)))
    chain.claim("second")
    live_call(chain, "call-a")
    chain.claim("third")
    live_call(chain, "call-b")
    chain.add(ev.TaskEnded(ending=Ending.COMPLETED))
    chain.add(ev.OwnershipReleased(owner="third", nonce=bytes(16)))
    chain.claim("judge")
    chain.add(ev.Annotated(target=TargetKind.TRAJECTORY, name="score", value=Body.of("1"), source="judge"))
    chain.add(ev.OwnershipReleased(owner="judge", nonce=bytes(16)))
    return chain


def live_call(chain: Chain, call_id: str) -> None:
    chain.add(
        ev.ToolIntent(
            call_id=call_id,
            tool="book",
            arguments=Body.of("{}"),
            effect=Effect.OPAQUE,
            place=Place.DISPATCH,
            not_after=1,
        )
    )
    chain.add(ev.ToolResult(call_id=call_id, status=ResultStatus.OK, output=Body.of("ok"), settled=Settled.DIRECT))


CHAINS = {"imported": imported, "living": living}


@pytest.fixture(params=sorted(CHAINS))
def records(request: pytest.FixtureRequest) -> Sequence[Made]:
    return CHAINS[request.param]().records


def audit(records: Iterable[Made], *, stored: State | None = None, trimmed: bool = False) -> Report:
    """Offsets are 10, 11, ... so that they differ from seqs."""
    one = Audit(ID, trimmed=trimmed)
    for offset, made in enumerate(records, start=10):
        try:
            event = decoded(made)
        except ForeignRecord as error:
            one.add_unreadable(error.message, 0, offset)
        else:
            one.add(event, 0, offset)
    return one.report(stored)


def state_of(records: Iterable[Made]) -> State:
    return fold_all(State(ID), (decoded(made) for made in records))


def first(report: Report) -> tuple[FaultKind, int]:
    assert report.faults, "no fault was found"
    return report.faults[0].kind, report.faults[0].seq


def test_a_healthy_log_is_sound(records: Sequence[Made]) -> None:
    report = audit(records)
    assert report.sound
    assert report.notes == ()
    assert (report.events, report.seq, report.first_offset) == (len(records), len(records) - 1, 10)


def test_a_flipped_byte_is_found_at_its_index_wherever_it_is(records: Sequence[Made]) -> None:
    for index, made in enumerate(records):
        for byte in (*range(0, 90, 3), len(made.value) - 1):
            report = audit(flipped(records, index, byte))
            assert first(report) == (FaultKind.TAMPERED, index), f"byte {byte} of event {index}"
            assert report.faults[0].offset == 10 + index
            assert len(report.faults) == 1


def test_a_dropped_event_is_missing_at_its_index(records: Sequence[Made]) -> None:
    for index in range(len(records) - 1):
        report = audit(dropped(records, index))
        assert first(report) == (FaultKind.MISSING, index)
        assert len(report.faults) == 1
        assert report.faults[0].offset is None


def test_two_swapped_events_are_out_of_order_at_the_first(records: Sequence[Made]) -> None:
    for index in range(len(records) - 1):
        report = audit(swapped(records, index))
        assert first(report) == (FaultKind.OUT_OF_ORDER, index)
        assert len(report.faults) == 1
        assert report.faults[0].offset == 10 + index + 1


def test_an_edited_event_with_a_matching_hash_header_is_found_by_what_follows(records: Sequence[Made]) -> None:
    for index in range(len(records) - 1):
        report = audit(edited(records, index))
        assert first(report) == (FaultKind.EDITED, index)
        assert report.faults[0].offset == 10 + index


def test_an_inserted_event_that_fits_is_found_at_its_index(records: Sequence[Made]) -> None:
    for index in range(1, len(records)):
        report = audit(inserted(records, index))
        assert first(report) == (FaultKind.INSERTED, index), f"at {index}"
        if index < len(records) - 1 and not isinstance(decoded(records[index]).body, ev.OwnershipClaimed):
            assert report.faults[0].offset == 10 + index


def test_an_inserted_event_that_hangs_on_nothing_is_found_at_its_index(records: Sequence[Made]) -> None:
    for index in range(1, len(records)):
        if isinstance(decoded(records[index]).body, ev.OwnershipClaimed):
            continue
        report = audit(inserted(records, index, hangs=False))
        assert first(report) == (FaultKind.INSERTED, index)
        assert report.faults[0].offset == 10 + index
        assert len(report.faults) == 1


FORGED_CLAIM = ev.OwnershipClaimed(owner="forger", nonce=b"forged" + bytes(10), driver=Driver.WORKER)


def test_an_inserted_claim_that_hangs_on_nothing_is_found_at_its_index(records: Sequence[Made]) -> None:
    for index in range(len(records)):
        report = audit(inserted(records, index, FORGED_CLAIM, hangs=False))
        assert first(report) == (FaultKind.INSERTED, index)
        assert report.faults[0].offset == 10 + index


def test_an_inserted_claim_that_fits_is_found_by_the_next_claim_or_a_stored_head(records: Sequence[Made]) -> None:
    stored = state_of(records)
    claims = [i for i, made in enumerate(records) if isinstance(decoded(made).body, ev.OwnershipClaimed)]
    for index in range(len(records)):
        report = audit(inserted(records, index, FORGED_CLAIM), stored=stored)
        assert first(report) == (FaultKind.INSERTED, index), f"at {index}"
        assert report.faults[0].offset == 10 + index
        if index < claims[-1]:
            assert first(audit(inserted(records, index, FORGED_CLAIM))) == (FaultKind.INSERTED, index)


def test_a_copy_of_an_event_is_a_retry(records: Sequence[Made]) -> None:
    for index in range(len(records)):
        report = audit([*records, records[index]])
        assert report.sound
        assert report.harmless == {"duplicate": 1}


def test_a_missing_tail_is_found_against_a_stored_head(records: Sequence[Made]) -> None:
    stored = state_of(records)
    for length in range(1, len(records)):
        assert audit(records[:length]).sound
        assert first(audit(records[:length], stored=stored)) == (FaultKind.TAIL_MISSING, length)


def test_a_stored_head_that_agrees_or_is_behind_is_no_fault(records: Sequence[Made]) -> None:
    assert audit(records, stored=state_of(records)).notes == ()
    behind = audit(records, stored=state_of(records[:-2]))
    assert behind.sound
    assert behind.notes == ("the stored state is 2 events behind the log",)


def test_an_edited_last_event_is_found_against_a_stored_head(records: Sequence[Made]) -> None:
    last = len(records) - 1
    report = audit(edited(records, last), stored=state_of(records))
    assert first(report) == (FaultKind.HEAD_DIFFERS, last)


def test_a_stored_state_that_the_log_does_not_give_is_a_fault(records: Sequence[Made]) -> None:
    report = audit(records, stored=state_of(records)._replace(turn=99))
    assert first(report) == (FaultKind.STATE_DIFFERS, len(records) - 1)
    assert "turn" in report.faults[0].detail


def test_a_dropped_event_at_the_end_of_a_live_pipeline_is_an_unacknowledged_tail() -> None:
    chain = run_of(ID, turns=1, ending=None)
    records = chain.records
    report = audit([*records[:-3], *records[-2:]])
    assert report.sound
    assert report.unresolved == 2
    assert "unacknowledged tail: 2 records" in report.notes[0]


def test_a_live_result_proves_that_its_intent_was_there() -> None:
    chain = run_of(ID, turns=1, ending=None)
    intent = chain.seq
    live_call(chain, "call-x")
    assert first(audit(dropped(chain.records, intent))) == (FaultKind.MISSING, intent)


def test_a_stored_head_beyond_an_unacknowledged_tail_makes_it_a_missing_event() -> None:
    records = run_of(ID, turns=1, ending=None).records
    report = audit([*records[:-3], *records[-2:]], stored=state_of(records))
    assert first(report) == (FaultKind.MISSING, len(records) - 3)


def test_a_gap_that_is_filled_by_appending_again_is_harmless() -> None:
    records = imported().records
    lost, rest = records[5], records[6:12]
    report = audit([*records[:5], *rest, lost, *rest, *records[12:]])
    assert report.sound
    assert report.notes == ()
    assert report.harmless == {"gap": len(rest)}


def test_a_gap_left_by_an_owner_that_was_replaced_is_harmless() -> None:
    chain = run_of(ID, turns=1, ending=None)
    kept = list(chain.records)
    ahead = Chain(ID)
    ahead.seq, ahead.epoch, ahead.hash = chain.seq, chain.epoch, chain.hash
    lost = [ahead.add(ev.MessageSent(peer="user", message=Body.of(text))) for text in "abc"]
    chain.claim("second")
    chain.add(ev.TaskEnded(ending=Ending.FAILED))
    report = audit([*kept, *lost[1:], *chain.records[len(kept) :]])
    assert report.sound
    assert "2 records were left behind a lost one" in report.notes[0]


def test_two_claims_at_once_are_one_winner_and_one_harmless_loser() -> None:
    chain = run_of(ID, turns=1, ending=None)
    rival = chain.peek(ev.OwnershipClaimed(owner="rival", nonce=b"r" * 16, driver=Driver.WORKER))
    kept = len(chain.records)
    chain.claim("winner")
    chain.add(ev.TaskEnded(ending=Ending.COMPLETED))
    report = audit([*chain.records[: kept + 1], rival, *chain.records[kept + 1 :]])
    assert report.sound
    assert report.harmless == {"fenced": 1}


def test_a_former_owner_that_wakes_up_is_fenced_and_harmless() -> None:
    chain = run_of(ID, turns=1, ending=None)
    zombie = Chain(ID)
    zombie.seq, zombie.epoch, zombie.hash = chain.seq, chain.epoch, chain.hash
    chain.claim("second")
    chain.add(ev.MessageSent(peer="user", message=Body.of("hello")))
    late = [zombie.add(ev.MessageSent(peer="user", message=Body.of("late"))) for _ in range(3)]
    report = audit([*chain.records, *late])
    assert report.sound
    assert report.harmless == {"fenced": 3}


def test_a_claim_put_in_before_the_true_one_is_found_when_the_true_owner_releases() -> None:
    records = imported().records
    report = audit(inserted(records, 0, FORGED_CLAIM))
    assert first(report) == (FaultKind.INSERTED, 0)
    assert report.faults[0].offset == 10


def test_an_event_after_a_release_is_not_its_owners() -> None:
    chain = imported()
    end = chain.seq
    chain.add(ev.MessageSent(peer="user", message=Body.of("late")))
    assert first(audit(chain.records)) == (FaultKind.INSERTED, end)


def test_each_break_is_one_fault_and_a_second_one_is_found_too() -> None:
    records = imported().records
    report = audit(inserted(flipped(records, 9), 4, hangs=False))
    assert [(one.kind, one.seq) for one in report.faults] == [(FaultKind.INSERTED, 4), (FaultKind.TAMPERED, 9)]


def test_a_history_whose_beginning_was_trimmed_is_checked_from_there_on(records: Sequence[Made]) -> None:
    kept = records[4:]
    report = audit(kept, trimmed=True)
    assert report.sound
    assert report.partial_from == 4
    assert first(audit(flipped(kept, 3), trimmed=True)) == (FaultKind.TAMPERED, 7)
    assert first(audit(kept)) == (FaultKind.MISSING, 0)


def test_an_event_of_an_unknown_type_is_part_of_the_chain() -> None:
    records = imported().records
    made = records[4]
    strange = made.value[:2] + b"\x01" * 8 + made.value[10:]
    report = audit([*records[:4], made._replace(value=strange, headers=())])
    assert report.sound
    assert report.unknown == 1
    assert "not known here" in report.notes[0]


def test_what_an_audit_remembers_is_bounded() -> None:
    chain = run_of(ID, turns=1, ending=None)
    one = Audit(ID)
    for offset, made in enumerate(chain.records[:-2]):
        one.add(decoded(made), 0, offset)
    for offset in range(5_000):
        chain.add(ev.MessageSent(peer="user", message=Body.of("x")))
        one.add(decoded(chain.records[-1]), 0, 100 + offset)
    assert len(one.waiting) <= 4096
    assert one.report().sound


Change = Callable[[Sequence[Made], int], Records]


@pytest.mark.parametrize("change", [flipped, dropped, swapped, edited])
def test_a_poisoned_history_leaves_its_faults_even_when_it_goes_on_for_long(change: Change) -> None:
    chain = run_of(ID, turns=120)
    chain.add(ev.OwnershipReleased(owner="owner", nonce=bytes(16)))
    assert first(audit(change(chain.records, 200)))[1] == 200
