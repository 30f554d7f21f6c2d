"""What the fold must not forget, and must not be made to stumble over (DESIGN §15, 2 and 6)."""

from __future__ import annotations

from tests.support.chains import Chain, Made
from tests.support.writing import call_events, start
from tracklog.schemas.codec import Event, decode_event
from tracklog.schemas.events import EventBody, ModelReplied, OwnershipReleased, TimerFired, TimerSet, ToolIntent
from tracklog.schemas.fold import TOTAL_MAX, fold, fold_all
from tracklog.schemas.lifecycle import EXT_PARKED, CallStatus, Parked
from tracklog.schemas.state import State, Timer, dump_state, load_state
from tracklog.schemas.values import Body, Effect, Place, ToolCall, Usage

INTENT = ToolIntent(call_id="c0", tool="pay", arguments=Body.of("{}"), effect=Effect.OPAQUE, place=Place.RECORDED)


def folded(*bodies: EventBody) -> State:
    chain = Chain("t-1")
    chain.claim()
    for body in (start(), *bodies):
        chain.add(body)
    return fold_all(State("t-1"), map(_decoded, chain.records))


def test_a_whole_turn_is_regular_and_leaves_nothing_open() -> None:
    state = folded(*call_events(2))
    assert (state.irregular, dict(state.calls), state.tools) == (0, {}, {"search": 2})


def test_an_open_intent_survives_a_reply_that_uses_its_call_id_again() -> None:
    again = ModelReplied(reply=Body.of("again"), tool_calls=(ToolCall(call_id="c0", tool="pay", arguments="{}"),))
    state = folded(*call_events(1)[:4], again)
    assert state.calls["c0"].status is CallStatus.INTENDED
    assert state.irregular == 1


def test_an_intent_that_nobody_authorized_is_open_all_the_same() -> None:
    state = folded(INTENT)
    assert list(state.open_intents) == ["c0"]
    assert state.irregular == 1


def test_a_second_intent_does_not_hide_the_first() -> None:
    first = folded(INTENT)
    both = folded(INTENT, INTENT.model_copy(update={"tool": "refund"}))
    assert both.calls["c0"] == first.calls["c0"]
    assert both.irregular == first.irregular + 1


def test_totals_stop_at_what_can_be_stored() -> None:
    huge = ModelReplied(reply=Body.of("x"), usage=Usage(input_tokens=TOTAL_MAX), cost_micro_usd=TOTAL_MAX)
    state = folded(huge, huge, huge)
    assert state.spent.input_tokens == state.spent.cost_micro_usd == TOTAL_MAX
    assert load_state(dump_state(state)) == state


def test_timers_tell_turns_from_times() -> None:
    by_turn, by_time = TimerSet(timer_id="a", due_turn=0), TimerSet(timer_id="b", due_at=5)
    state = folded(by_turn, by_time)
    assert state.timers == {"a": Timer(due_turn=0), "b": Timer(due_at=5)}
    assert load_state(dump_state(state)) == state
    assert folded(by_turn, by_time, TimerFired(timer_id="a")).timers == {"b": Timer(due_at=5)}


def test_an_event_whose_body_cannot_be_read_here_is_accepted_and_counted_unknown() -> None:
    """Readers with other limits come to the same verdict; only the header names its type, so it moves no lifecycle."""
    chain = Chain("t-1")
    events = [_decoded(made) for made in (chain.claim(), chain.add(start()), chain.add(call_events(1)[0]))]
    unreadable = events[1]._replace(body=None, flaw="over a limit of this reader")
    state, judgement = fold(fold_all(State("t-1"), events[:1]), unreadable)
    assert (judgement.verdict, judgement.fault) == ("accepted", False)
    assert (state.status, state.unknown, state.irregular) == ("claimed", 1, 0)


def _decoded(made: Made) -> Event:
    return decode_event(made.key, made.value, made.headers)


def test_a_release_says_why_until_somebody_claims() -> None:
    chain = Chain("t-1")
    chain.claim()
    chain.add(start())
    released = OwnershipReleased(owner="agent", nonce=bytes(16), reason="a person must look")
    chain.add(released, ext={EXT_PARKED: Parked.STUCK.value})
    parked = fold_all(State("t-1"), map(_decoded, chain.records))
    assert (parked.parked, parked.reason, parked.summary) == ("stuck", "a person must look", "stuck")
    chain.claim()
    again = fold_all(State("t-1"), map(_decoded, chain.records))
    assert (again.parked, again.reason, again.summary) == ("", "", "running")


def test_owners_that_die_are_counted_until_one_gets_on() -> None:
    chain = Chain("t-1")
    chain.claim()
    chain.add(start())
    chain.claim()
    chain.claim()
    assert fold_all(State("t-1"), map(_decoded, chain.records)).tries == 3
    chain.add(ModelReplied(reply=Body.of("hello")))
    assert fold_all(State("t-1"), map(_decoded, chain.records)).tries == 0
