"""The fold takes whatever the log has accepted, and a stored state is the state."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.records import bodies
from tests.property.writers import TRAJECTORY, event_of
from tests.support.chains import Chain
from tracklog.schemas.catalog import Kind
from tracklog.schemas.events import OwnershipClaimed
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import State, dump_state, load_state
from tracklog.schemas.values import InboxId

CALL_IDS = st.sampled_from(["one", "two"])


@st.composite
def histories(draw: st.DrawFn) -> Chain:
    """A claimed trajectory with any events in any order; calls meet, because they have few ids."""
    chain = Chain(TRAJECTORY)
    chain.claim()
    for body in draw(st.lists(bodies(Kind.EVENTS), max_size=12)):
        _add(draw, chain, body)
    return chain


def _add(draw: st.DrawFn, chain: Chain, body: Any) -> None:
    if getattr(body, "call_id", None):
        body = body.model_copy(update={"call_id": draw(CALL_IDS)})
    inbox_id = draw(st.none() | st.builds(InboxId, source=CALL_IDS, seq=st.integers(0, 9)))
    chain.add(body, turn=draw(st.integers(0, 3)), inbox_id=inbox_id)
    chain.epoch += isinstance(body, OwnershipClaimed)


@settings(max_examples=60)
@given(histories())
def test_any_accepted_events_fold_to_a_state_that_can_be_stored(chain: Chain) -> None:
    state = fold_all(State(TRAJECTORY), map(event_of, chain.records))

    assert (state.events, state.head.seq, state.faults) == (len(chain.records), chain.seq - 1, 0)
    assert load_state(dump_state(state)) == state
    assert dump_state(load_state(dump_state(state))) == dump_state(state)


@settings(max_examples=60)
@given(histories())
def test_folding_again_gives_the_same_bytes(chain: Chain) -> None:
    first, second = (fold_all(State(TRAJECTORY), map(event_of, chain.records)) for _ in range(2))

    assert dump_state(first) == dump_state(second)


@settings(max_examples=60)
@given(histories())
def test_the_highest_number_of_a_source_is_kept(chain: Chain) -> None:
    taken: dict[str, int] = {}
    for event in map(event_of, chain.records):
        if event.envelope.inbox_id is not None:
            source, seq = event.envelope.inbox_id.source, event.envelope.inbox_id.seq
            taken[source] = max(taken.get(source, seq), seq)

    assert fold_all(State(TRAJECTORY), map(event_of, chain.records)).inbox == taken
