"""The log arbitrates: whatever writers and the way to the log do, one history comes out of it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.writers import TRAJECTORY, Step, event_of, played, steps
from tests.support.chains import Chain, Made
from tracklog.schemas.catalog import KIND_OF
from tracklog.schemas.codec import confluent, split_frame
from tracklog.schemas.events import Observed, OwnershipClaimed
from tracklog.schemas.fold import fold, fold_all
from tracklog.schemas.head import Judgement, Verdict
from tracklog.schemas.state import State, dump_state, load_state
from tracklog.schemas.values import ZERO_HASH, Body, ObservedKind

REGISTERED = confluent({name: number for number, name in enumerate(KIND_OF)})


def judged(log: list[Made], state: State | None = None) -> tuple[list[Judgement], State]:
    state = State(TRAJECTORY) if state is None else state
    verdicts = []
    for made in log:
        state, judgement = fold(state, event_of(made))
        verdicts.append(judgement)
    return verdicts, state


def accepted(log: list[Made]) -> list[Made]:
    verdicts, _ = judged(log)
    return [made for made, (verdict, _) in zip(log, verdicts, strict=True) if verdict is Verdict.ACCEPTED]


def without_counters(state: State) -> State:
    """What the accepted events alone decide."""
    return state._replace(head=state.head._replace(lost=()), harmless={}, faults=0, fault=None)


@st.composite
def wild_logs(draw: st.DrawFn) -> list[Made]:
    """Records that nobody honest wrote: seq, epoch and prev_hash near to what would fit, and often just that."""
    log: list[Made] = []
    state, hashes = State(TRAJECTORY), [ZERO_HASH]
    for _ in range(draw(st.integers(1, 40))):
        chain = Chain(TRAJECTORY)
        head = state.head
        chain.seq = max(0, head.seq + draw(st.sampled_from([1, 1, 1, 1, 0, -1, 2, 3])))
        chain.epoch = max(0, head.epoch + draw(st.sampled_from([0, 0, 0, 0, -1, 1])))
        chain.hash = draw(st.one_of(st.just(head.hash), st.just(head.hash), st.sampled_from(hashes)))
        made = _anything(draw, chain, len(log))
        log.append(made if not log or draw(st.integers(0, 9)) else draw(st.sampled_from(log)))
        state, _ = fold(state, event_of(log[-1]))
        hashes.append(made.hash)
    return log


def _anything(draw: st.DrawFn, chain: Chain, number: int) -> Made:
    if draw(st.integers(0, 3)) == 0:
        return chain.claim(f"owner-{number}")
    text = Body.of(str(draw(st.integers(0, 3))))
    return chain.add(Observed(kind=ObservedKind.STEP, name="note", occurrence=0, value=text))


LOGS = st.one_of(steps().map(lambda script: played(script)[0]), wild_logs())


@settings(max_examples=60)
@given(steps())
def test_writers_that_keep_the_rules_are_never_at_fault(script: list[Step]) -> None:
    log, _ = played(script)

    verdicts, state = judged(log)

    assert not any(judgement.fault for judgement in verdicts)
    assert (state.faults, state.fault) == (0, None)


@settings(max_examples=60)
@given(steps())
def test_of_what_a_writer_sent_under_a_claim_a_prefix_is_accepted(script: list[Step]) -> None:
    log, writers = played(script)

    hashes = [made.hash for made in accepted(log)]

    for writer in writers:
        mine = [made.hash in hashes for made in writer.sent]
        assert mine == sorted(mine, reverse=True), "nothing behind a lost record is accepted without it"


@settings(max_examples=60)
@given(LOGS)
def test_the_accepted_events_are_one_unbroken_chain(log: list[Made]) -> None:
    events = [event_of(made) for made in accepted(log)]

    assert [event.envelope.seq for event in events] == list(range(len(events)))
    claims, before = 0, ZERO_HASH
    for event in events:
        assert (event.envelope.epoch, event.envelope.prev_hash) == (claims, before)
        claims += isinstance(event.body, OwnershipClaimed)
        before = event.hash


@settings(max_examples=60)
@given(LOGS, st.data())
def test_a_reader_that_starts_from_a_stored_state_judges_as_one_that_read_all(
    log: list[Made], data: st.DataObject
) -> None:
    verdicts, state = judged(log)
    at = data.draw(st.integers(0, len(log)))

    earlier, stored = judged(log[:at])
    later, resumed = judged(log[at:], load_state(dump_state(stored)))

    assert earlier + later == verdicts
    assert resumed == state
    assert dump_state(resumed) == dump_state(state)


@settings(max_examples=60)
@given(LOGS)
def test_the_accepted_records_alone_give_the_same_state(log: list[Made]) -> None:
    _, state = judged(log)

    alone = fold_all(State(TRAJECTORY), map(event_of, accepted(log)))

    assert without_counters(alone) == without_counters(state)
    assert (alone.harmless, alone.faults) == ({}, 0)


@settings(max_examples=40)
@given(LOGS)
def test_a_copy_under_the_other_framing_is_judged_the_same(log: list[Made]) -> None:
    """As a mirrored cluster with another registry has it: other frames, other offsets, the same verdicts."""
    assert judged([_reframed(made) for made in log]) == judged(log)


def _reframed(made: Made) -> Made:
    headers = dict(made.headers)
    _, payload = split_frame(made.value, headers)
    return made._replace(value=b"\x00" + (7).to_bytes(4, "big") + payload)


@settings(max_examples=40)
@given(LOGS, st.data())
def test_appending_accepted_events_again_changes_nothing(log: list[Made], data: st.DataObject) -> None:
    _, state = judged(log)
    again = accepted(log)[-20:]
    repeated = data.draw(st.permutations(again))

    more, after = judged(repeated, state)

    assert {judgement.verdict for judgement in more} <= {Verdict.DUPLICATE}
    assert without_counters(after) == without_counters(state)
    assert after.head.lost == state.head.lost
