"""What views take for accepted, from whole events or from a glance at them, is what judging says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_verdicts import wild_logs
from tests.property.writers import TRAJECTORY, event_of
from tests.support.chains import Made
from tracklog.infra.log.port import Record
from tracklog.processors.decoding import step_of, wanted_by
from tracklog.processors.place import Place, Step
from tracklog.schemas.fold import fold
from tracklog.schemas.head import Verdict
from tracklog.schemas.state import State


def taken(log: list[Made], wanted: frozenset[str] | None) -> tuple[list[bool], Place]:
    place, found = Place(), []
    for offset, made in enumerate(log):
        step = step_of(Record("events", 0, offset, 0, made.key, made.value, made.headers), 1, wanted)
        assert isinstance(step, Step)
        after = step.at(place)
        assert step.at(place) is after, "asked by the next view"
        found.append(after is not None)
        place = place if after is None else after
    return found, place


@settings(max_examples=200)
@given(wild_logs(), st.sampled_from([None, wanted_by([]), wanted_by([frozenset({"Observed"})])]))
def test_what_a_view_takes_is_what_is_accepted(log: list[Made], wanted: frozenset[str] | None) -> None:
    state, expected = State(TRAJECTORY), []
    for made in log:
        state, judgement = fold(state, event_of(made))
        expected.append(judgement.verdict is Verdict.ACCEPTED)

    found, place = taken(log, wanted)

    assert found == expected
    assert place == (state.head.epoch, state.head.seq, state.head.hash)
