"""What people are shown of the arguments of a call that waits for them: as recorded, edited perhaps, and cut."""

from __future__ import annotations

import pytest

from tracklog.infra.log.port import Record
from tracklog.processors.agenda import ARGUMENTS_CHARS_MAX, Agenda, TrajectoryAgenda, Waiting, shown_as, waiting_of
from tracklog.processors.processor import Seen
from tracklog.processors.sample_runs import Chain
from tracklog.schemas import events as ev
from tracklog.schemas.approvals import terms_ext
from tracklog.schemas.codec import decode_event
from tracklog.schemas.values import (
    ZERO_HASH,
    Body,
    Choice,
    Effect,
    Ending,
    Place,
    ResultStatus,
    Settled,
    ToolCall,
)

GIVEN = '{"to": "trip"}'


def folded(chain: Chain) -> TrajectoryAgenda:
    agenda = Agenda()
    state = agenda.start(chain.trajectory_id)
    for offset, made in enumerate(chain.records):
        record = Record("t", 0, offset, offset, made.key, made.value, made.headers)
        state = agenda.apply(state, Seen(decode_event(record.key, record.value, record.headers), record))
    return state


def waiting(chain: Chain) -> Waiting:
    (one,) = folded(chain).waiting.values()
    return one


def held(arguments: str = GIVEN) -> Chain:
    chain = Chain("run")
    chain.claim()
    calls = (ToolCall(call_id="c1", tool="pay", arguments=arguments), ToolCall(call_id="c2", tool="pay", arguments="x"))
    chain.add(ev.ModelReplied(reply=Body.of("paying"), tool_calls=calls))
    ask(chain)
    return chain


def ask(chain: Chain) -> None:
    asked = ev.ApprovalRequested(call_id="c1", argument_hash=ZERO_HASH, may_approve=("ada",))
    chain.add(asked, ext=terms_ext("pay", False, ()))


def intend(chain: Chain, arguments: str) -> None:
    intent = ev.ToolIntent(
        call_id="c1", tool="pay", arguments=Body.of(arguments), effect=Effect.OPAQUE, place=Place.INLINE, not_after=9
    )
    chain.add(intent)
    chain.add(ev.Escalated(call_id="c1", tried="no answer", asked="ada"))


def test_a_held_call_shows_what_the_model_proposed() -> None:
    one = waiting(held())

    assert one.arguments == GIVEN
    assert waiting_of(shown_as(one).encode()) == one


def test_one_whose_arguments_were_edited_and_that_is_held_again_shows_the_new_ones() -> None:
    chain = held()
    chain.add(
        ev.ApprovalResolved(
            call_id="c1",
            request_hash=ZERO_HASH,
            approver="ada",
            choice=Choice.EDIT,
            arguments=Body.of('{"to": "home"}'),
        )
    )
    assert folded(chain).waiting == {}
    ask(chain)

    assert waiting(chain).arguments == '{"to": "home"}'


def test_one_that_may_have_happened_shows_what_it_was_made_with() -> None:
    chain = held()
    chain.add(ev.ApprovalResolved(call_id="c1", request_hash=ZERO_HASH, approver="ada", choice=Choice.APPROVE))
    intend(chain, '{"to": "made"}')

    assert waiting(chain).arguments == '{"to": "made"}'


@pytest.mark.parametrize("more", [0, 1])
def test_arguments_are_cut(more: int) -> None:
    text = "x" * (ARGUMENTS_CHARS_MAX + more)

    shown = waiting(held(text)).arguments

    assert len(shown) == ARGUMENTS_CHARS_MAX
    assert shown.endswith("…" if more else "x")


def test_nothing_is_kept_of_calls_that_have_a_result_or_of_a_run_that_has_ended() -> None:
    chain = held()
    chain.add(ev.ToolResult(call_id="c2", status=ResultStatus.OK, output=Body.of("1"), settled=Settled.DIRECT))
    assert set(folded(chain).proposed) == {"c1"}

    chain.add(ev.TaskEnded(ending=Ending.COMPLETED))

    assert folded(chain).proposed == {}
