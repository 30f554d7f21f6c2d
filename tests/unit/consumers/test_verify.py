"""Verification of a whole log: each trajectory by itself, whatever the others are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from tests.support.chains import Chain, Made, append_all, interleaved, run_of
from tests.support.memory_logs import memory_log
from tests.support.tampering import decoded, dropped, flipped
from tracklog.consumers.audit_shelf import AuditShelf
from tracklog.consumers.verify import Verification
from tracklog.infra.log.port import Log
from tracklog.schemas.audit import Audit
from tracklog.schemas.audit_report import FaultKind, Report
from tracklog.schemas.events import OwnershipReleased
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics

TOPIC = Topics().events


@pytest.fixture
def log() -> Iterator[Log]:
    log = memory_log(2)
    yield log
    log.close()


def released(trajectory_id: str) -> Chain:
    chain = run_of(trajectory_id)
    chain.add(OwnershipReleased(owner="owner", nonce=bytes(16)))
    return chain


def poisoned(chain: Chain, records: Sequence[Made]) -> Chain:
    chain.records = list(records)
    return chain


def reports(checked: Verification) -> dict[str, Report]:
    return {report.trajectory_id: report for report in checked.reports()}


def test_one_poisoned_trajectory_is_named_and_the_others_are_sound(log: Log) -> None:
    chains = [released(f"run-{number}") for number in range(8)]
    poisoned(chains[3], flipped(chains[3].records, 5))
    poisoned(chains[6], dropped(chains[6].records, 7))
    append_all(log, TOPIC, interleaved(chains))

    checked = Verification(log, TOPIC)
    found = reports(checked)

    assert (checked.trajectories, checked.faulty) == (8, 2)
    assert (found["run-3"].faults[0].kind, found["run-3"].faults[0].seq) == (FaultKind.TAMPERED, 5)
    assert (found["run-6"].faults[0].kind, found["run-6"].faults[0].seq) == (FaultKind.MISSING, 7)
    assert all(report.sound for one, report in found.items() if one not in ("run-3", "run-6"))


def test_foreign_bytes_are_counted_and_harmless(log: Log) -> None:
    chain = released("run-0")
    junk = Made(b"run-0", b"hello", (), b"")
    append_all(log, TOPIC, [*chain.records[:4], junk, *chain.records[4:], Made(b"other", b"\xc3\x01junk", (), b"")])

    checked = Verification(log, TOPIC)
    found = reports(checked)

    assert found.keys() == {"run-0"}
    assert found["run-0"].sound
    assert checked.foreign_total == 2
    assert any("hello"[:4].encode().hex() in one.reason for one in checked.foreign)


@pytest.mark.parametrize("index", [0, 4, 16])
def test_an_event_damaged_beyond_reading_is_a_fault_of_its_trajectory(log: Log, index: int) -> None:
    chain = released("run-0")
    poisoned(chain, flipped(chain.records, index, byte=0))
    append_all(log, TOPIC, chain.records)

    (report,) = Verification(log, TOPIC).reports()

    assert (report.faults[0].kind, report.faults[0].seq) == (FaultKind.TAMPERED, index)


def test_an_event_whose_key_was_damaged_is_found_by_its_own_bytes() -> None:
    log = memory_log(1)
    chain = released("run-0")
    chain.records[5] = chain.records[5]._replace(key=b"run-X")
    append_all(log, TOPIC, chain.records)

    (report,) = Verification(log, TOPIC).reports()

    assert (report.faults[0].kind, report.faults[0].seq) == (FaultKind.TAMPERED, 5)


class States:
    def __init__(self, *states: State) -> None:
        self._states = {state.trajectory_id: state for state in states}

    def state(self, trajectory_id: str) -> State | None:
        return self._states.get(trajectory_id)

    def states(self) -> Iterator[State]:
        yield from self._states.values()


def test_a_tail_that_is_gone_is_found_against_stored_heads_even_when_nothing_is_left(log: Log) -> None:
    whole, cut, gone = (released(f"run-{number}") for number in range(3))
    states = [fold_all(State(one.trajectory_id), map(decoded, one.records)) for one in (whole, cut, gone)]
    append_all(log, TOPIC, [*whole.records, *cut.records[:9]])

    checked = Verification(log, TOPIC, stored=States(*states))
    found = reports(checked)

    assert found["run-0"].sound
    assert (found["run-1"].faults[0].kind, found["run-1"].faults[0].seq) == (FaultKind.TAIL_MISSING, 9)
    assert (found["run-2"].faults[0].kind, found["run-2"].faults[0].seq) == (FaultKind.TAIL_MISSING, 0)
    assert checked.faulty == 2


def test_one_trajectory_is_checked_without_the_others(log: Log) -> None:
    chains = [released(f"run-{number}") for number in range(4)]
    append_all(log, TOPIC, interleaved(chains))

    checked = Verification(log, TOPIC, only="run-2")

    assert [report.trajectory_id for report in checked.reports()] == ["run-2"]
    assert len(checked.partitions()) == 1


def test_a_beginning_that_was_trimmed_is_said_and_is_no_fault(log: Log) -> None:
    chain = released("run-0")
    places = append_all(log, TOPIC, chain.records)
    log.delete_records(TOPIC, {places[0].partition: 4})

    (report,) = Verification(log, TOPIC).reports()

    assert report.sound
    assert report.partial_from == 4


def test_progress_adds_up_to_all_records(log: Log) -> None:
    append_all(log, TOPIC, interleaved([released(f"run-{number}") for number in range(4)]))
    told: list[int] = []

    checked = Verification(log, TOPIC, on_progress=told.append)
    list(checked.reports())

    assert sum(told) == checked.records == 4 * 17


def test_a_shelf_keeps_few_audits_in_memory_and_forgets_none() -> None:
    chains = [released(f"run-{number:02}") for number in range(12)]
    shelf = AuditShelf(in_memory_max=3)
    for offset, made in enumerate(interleaved(chains)):
        event = decoded(made)
        audit = shelf.get(event.envelope.trajectory_id)
        if audit is None:
            audit = Audit(event.envelope.trajectory_id)
            shelf.put(event.envelope.trajectory_id, audit)
        audit.add(event, 0, offset)
        assert len(shelf._near) <= 3

    audits = list(shelf.drain())

    assert [audit.state.trajectory_id for audit in audits] == [chain.trajectory_id for chain in chains]
    assert all(audit.report().sound and audit.records == 17 for audit in audits)
