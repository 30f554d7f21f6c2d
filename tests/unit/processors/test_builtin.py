"""The processors that come with Tracklog: each stands every check, and says what happened in plain runs."""

from __future__ import annotations

from typing import Any

import pytest

from tracklog.consumers.refusals import Reason, reason_of
from tracklog.processors.builtin.activity import KEPT_MS, Activity
from tracklog.processors.builtin.doubts import Doubts
from tracklog.processors.builtin.drift import Drift
from tracklog.processors.builtin.pace import Paces
from tracklog.processors.builtin.refused import KEPT_MS as REFUSED_KEPT_MS
from tracklog.processors.builtin.refused import Refused, record_of
from tracklog.processors.builtin.spend import Spend
from tracklog.processors.builtin.tool_stats import ToolStats, latency_class
from tracklog.processors.loading import BUILTIN
from tracklog.processors.processor import Processor
from tracklog.processors.testing import APPENDED_MS, Chain, Driver, check_conformance, run_of, sample_runs
from tracklog.schemas import events as ev
from tracklog.schemas.values import Body, Effect, Ending, InboxId, Place, ResultStatus, Settled, ToolCall
from tracklog.schemas.values import Driver as Drives

DAY = "2023-11-14"
"""Of the driver's append times."""


def troubled(name: str, *, settled: bool) -> Chain:
    """A run whose payment is in doubt, then with a person; and which crossed to another model."""
    chain = Chain(name)
    chain.claim()
    chain.add(ev.TaskStarted(driver=Drives.IMPORT, task=Body.of("pay"), agent="agent"))
    for call in ("one", "two", "three"):
        proposed = ToolCall(call_id=call, tool="look", arguments="{}")
        chain.add(ev.ModelReplied(reply=Body.of(""), tool_calls=(proposed,)))
    intent = ev.ToolIntent(call_id="p", tool="pay", arguments=Body.of("{}"), effect=Effect.OPAQUE, place=Place.RECORDED)
    chain.add(intent)
    chain.add(ev.InDoubt(call_id="p", tried="no answer"))
    chain.add(ev.Escalated(call_id="p", tried="no answer", asked="operator"))
    chain.add(ev.DriftCrossed(old_model="m-1", new_model="m-2", old_tools=None, new_tools=bytes(32)))
    if settled:
        done = ev.ToolResult(
            call_id="p", status=ResultStatus.OK, output=Body.of("1"), settled=Settled.RECORDED, duration_ms=90_000
        )
        chain.add(done)
    said = InboxId(source="job", seq=1)
    chain.add(ev.InboxRefused(refused=said, kind="Outcome", reason="call p is not open where calls are dispatched"))
    chain.add(ev.OwnershipReleased(owner="owner", nonce=bytes(16)))
    return chain


def test_what_owners_refuse_is_listed_until_it_is_old() -> None:
    driver = Driver(Refused())
    driver.feed(troubled("run-1", settled=True))
    (member,) = driver.get("all")
    one = record_of(member.decode())
    assert driver.get(f"all:{one.tenant}") == driver.get("all") == {member: float(one.at_ms)}
    assert (one.trajectory_id, one.kind, one.source, one.source_seq) == ("run-1", "Outcome", "job", 1)
    assert reason_of(one.words) is Reason.NOT_OPEN
    driver.advance(REFUSED_KEPT_MS / 1000)
    driver.feed(run_of("later", turns=1))
    assert driver.get("all") is None


@pytest.mark.parametrize("kind", BUILTIN, ids=lambda kind: kind.name)
def test_each_stands_every_check(kind: type[Processor[Any]]) -> None:
    assert (
        check_conformance(kind, [*sample_runs(), troubled("open", settled=False), troubled("settled", settled=True)])
        == 8
    )


def test_spend_is_added_up_by_day_tenant_and_model() -> None:
    driver = Driver(Spend())
    driver.feed(run_of("a", turns=2, tenant="north"), run_of("b", turns=1, tenant="north"), run_of("c", tenant="south"))

    meters = driver.get(f"meter:{DAY}")
    assert {name: value for name, value in meters.items() if name.startswith(b"north|test-model|")} == {
        b"north|test-model|calls": b"3",
        b"north|test-model|input_tokens": b"300",
        b"north|test-model|output_tokens": b"30",
        b"north|test-model|cost_micro_usd": b"750",
        b"north|test-model|unpriced": b"0",
    }
    assert meters[b"south|test-model|calls"] == b"2"
    driver.advance(24 * 3600)
    driver.feed(run_of("d", turns=1, tenant="north"))
    assert driver.get("meter:2023-11-15")[b"north|test-model|calls"] == b"1"


def test_activity_counts_each_minute_and_lets_old_ones_go_by_the_time_of_the_log() -> None:
    driver = Driver(Activity())
    driver.feed(run_of("a", turns=1))
    first = f"minute:{APPENDED_MS // 60_000 * 60_000}"
    assert driver.get(first)[b"ModelReplied"] == b"1"

    driver.advance(KEPT_MS / 1000)
    driver.feed(run_of("b", turns=1))

    assert driver.get(first) is None
    assert driver.state(first.partition(":")[2]) is None
    assert len(driver.store.get(0, "expiry")) == 1


def test_tools_have_calls_statuses_and_latencies() -> None:
    driver = Driver(ToolStats())
    driver.feed(run_of("a", turns=2, tools=["pay"]), troubled("t", settled=True))

    assert driver.get("tool:pay") == {
        b"calls": b"3",
        b"status:ok": b"3",
        b"le:10": b"2",
        b"le:100000": b"1",
        b"ms": b"90010",
    }
    assert (latency_class(10), latency_class(11), latency_class(100_001)) == ("le:10", "le:30", "le:inf")


def test_a_call_in_doubt_is_open_until_its_outcome_is_known() -> None:
    driver = Driver(Doubts())
    driver.feed(troubled("t", settled=False), troubled("s", settled=True))

    assert list(driver.get("open")) == [b'["t","p","pay","operator"]']


def test_a_run_that_proposes_the_same_again_and_again_is_looping() -> None:
    driver = Driver(Paces())
    chain = troubled("t", settled=False)
    driver.feed(chain, run_of("r", turns=1, ending=None), run_of("e", turns=1, ending=Ending.COMPLETED))

    assert driver.get("looping") == {b"t": 3.0}
    assert list(driver.get("moving")) == [b"r"]
    other = ToolCall(call_id="four", tool="look", arguments='{"at": 2}')
    driver.feed(chain.claim("again"), chain.add(ev.ModelReplied(reply=Body.of(""), tool_calls=(other,))))
    assert driver.get("looping") is None
    assert set(driver.get("moving")) == {b"r", b"t"}


def test_drift_is_a_stream_whose_ids_are_positions_of_the_log() -> None:
    driver = Driver(Drift())
    driver.feed(troubled("t", settled=False))

    [((number, at), fields)] = driver.get("changes")
    assert (driver.log[number - 1].key, at) == (b"t", 0)
    assert (fields[b"old_model"], fields[b"new_model"], fields[b"prompt"]) == (b"m-1", b"m-2", b"")
    assert fields[b"tools"] == b"none -> 0000000000000000"
