"""Spans of runs, from their events alone."""

from __future__ import annotations

import pytest

from tests.unit.processors.test_builtin import troubled
from tracklog.infra.log.port import Record
from tracklog.processors.processor import Seen
from tracklog.processors.sample_runs import RECORDED_AT_US
from tracklog.processors.spans import Run, Span, Spans, trace_of
from tracklog.processors.testing import Chain, check_conformance, run_of, sample_runs
from tracklog.schemas import events as ev
from tracklog.schemas.codec import decode_event
from tracklog.schemas.values import Body, Driver, Ending

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def spans_of(chain: Chain) -> list[Span]:
    """As a process would find them, with each state stored and loaded in between."""
    spans, processor = list[Span](), Spans()
    state: Run = processor.start(chain.trajectory_id)
    for offset, made in enumerate(chain.records):
        record = Record("t", 0, offset, RECORDED_AT_US // 1000, made.key, made.value, made.headers)
        seen = Seen(decode_event(made.key, made.value, made.headers), record)
        if seen.event.name in Spans.reads:
            state = processor.apply(state, seen)
            state = processor.restore(chain.trajectory_id, processor.snapshot(state))
            spans += state.closed
    return spans


def test_it_stands_every_check() -> None:
    assert check_conformance(Spans, [*sample_runs(), troubled("open", settled=False), troubled("s", settled=True)]) == 8


def test_a_run_has_a_span_for_each_call_under_its_own() -> None:
    chain = run_of("trip-1", turns=2, tenant="north")
    *calls, whole = spans_of(chain)
    assert [span.name for span in calls] == ["chat test-model", "execute_tool lookup"] * 2
    assert (whole.name, whole.parent) == ("invoke_agent agent", "")
    assert (whole.trace, whole.span) == trace_of("trip-1")
    assert {(span.trace, span.parent) for span in calls} == {(whole.trace, whole.span)}
    assert len({span.span for span in (*calls, whole)}) == 5
    chat, tool = calls[:2]
    assert chat.calls_out
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 100
    assert chat.attributes["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert (tool.attributes["gen_ai.tool.name"], tool.attributes["gen_ai.tool.call.id"]) == ("lookup", "call-1")
    assert whole.attributes["tracklog.tenant"] == "north"
    assert all(whole.start_ns <= span.start_ns <= span.end_ns <= whole.end_ns for span in calls)


def test_the_same_events_give_the_same_spans_wherever_they_are_folded() -> None:
    assert spans_of(run_of("trip-1")) == spans_of(run_of("trip-1"))
    assert {one.span for one in spans_of(run_of("trip-1"))}.isdisjoint(one.span for one in spans_of(run_of("trip-2")))


@pytest.mark.parametrize(
    ("given", "trace", "parent"),
    [
        (PARENT, "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", trace_of("t")[0], ""),
        ("nonsense", trace_of("t")[0], ""),
        (None, trace_of("t")[0], ""),
    ],
)
def test_a_recorded_trace_parent_is_what_a_run_hangs_on(given: str | None, trace: str, parent: str) -> None:
    chain = Chain("t")
    chain.claim()
    chain.add(ev.TaskStarted(driver=Driver.IMPORT, task=Body.of("x"), agent="a", trace_parent=given))
    chain.add(ev.TaskEnded(ending=Ending.FAILED, reason="broke"))
    (span,) = spans_of(chain)
    assert (span.trace, span.parent, span.error) == (trace, parent, "failed")


def test_a_call_in_doubt_ends_with_its_result_and_says_so() -> None:
    (call,) = [span for span in spans_of(troubled("settled", settled=True)) if "gen_ai.tool.name" in span.attributes]
    assert call.attributes["tracklog.call.doubts"] == 1
    assert not [span for span in spans_of(troubled("open", settled=False)) if "gen_ai.tool.name" in span.attributes]
