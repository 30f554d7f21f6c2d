"""A changed harness over a record: each change is found, at its turn, with both sides (DESIGN §7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.ledger import Ledger, ledger
from tests.support.sessions import Program, ScriptedModel, World, asks, new_world, says
from tracklog.producers.divergence import Cause, Diverged, Divergence
from tracklog.producers.policy import ALLOW, Decision, Situation, deny
from tracklog.producers.replay import Report, replay
from tracklog.producers.session import Session
from tracklog.producers.tools import Tool
from tracklog.producers.turn import call_all
from tracklog.schemas.values import Budgets, ToolCall

SEEN = {"role": "user", "content": "book it"}


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


def model() -> ScriptedModel:
    return ScriptedModel(
        asks(("c1", "readonly"), ("c2", "opaque")), asks(("c3", "idempotent")), says("done"), says("more")
    )


async def value(n: int = 1) -> int:
    return n


class Harness:
    """A loop as a user writes one; the switches are the planted changes."""

    def __init__(self, change: str = "") -> None:
        self.change = change

    async def __call__(self, session: Session) -> None:
        change = self.change
        messages: list[Any] = [{"role": "user", "content": "other words" if change == "message" else "book it"}]
        await self._steps(session)
        for turn in (1, 2, 3):
            if change == "reading" and turn == 2:
                await session.now_us()
            if change == "compaction" and turn == 3:
                del messages[1:4]
            if change == "order of messages" and turn == 3:
                messages[2:4] = reversed(messages[2:4])
            await session.build_context(messages)
            reply = await session.call_model()
            messages.append(reply.message)
            messages += await self._results(session, reply, turn)
            if change == "stops" and turn == 2:
                return
        if change == "goes on":
            await session.build_context([*messages, SEEN])
            await session.call_model()
        await session.end("another result" if change == "result" else "well")

    async def _steps(self, session: Session) -> None:
        names = {"swapped steps": "ba", "missing step": "b", "last step missing": "a", "extra step": "axb"}
        for name in names.get(self.change, "ab"):
            await session.step(name, value)

    async def _results(self, session: Session, reply: Any, turn: int) -> list[Any]:
        if self.change == "arguments" and turn == 2:
            (call,) = reply.tool_calls
            await session.call_tool(call.model_copy(update={"arguments": '{"what":"other"}'}))
        if self.change == "tool" and turn == 2:
            (call,) = reply.tool_calls
            await session.call_tool(call.model_copy(update={"tool": "opaque"}))
        if self.change == "no call" and turn == 2:
            return [{"role": "tool", "tool_call_id": "c3", "content": "receipt for c3"}]
        results = [result.message for result in await call_all(session, reply)]
        if self.change == "truncation" and turn == 2:
            return [{**message, "content": message["content"][:4]} for message in results]
        return results


class NothingOpaque:
    version = "strict"
    budgets = Budgets()

    def decide(self, call: ToolCall, tool: Tool, situation: Situation) -> Decision:
        return deny("no effects") if tool.name == "opaque" else ALLOW


CHANGES: dict[str, tuple[int, str, str]] = {
    "swapped steps": (0, "step 'a'", "step 'b'"),
    "missing step": (0, "step 'a'", "step 'b'"),
    "last step missing": (0, "step 'b'", "a message from user"),
    "extra step": (0, "step 'b'", "step 'x'"),
    "message": (0, "'book it'", "'other words'"),
    "reading": (2, "a context of 4 messages", "clock 'now'"),
    "compaction": (3, "a context of 6 messages", "a context of 3 messages"),
    "order of messages": (3, "a context of 6 messages", "a context of 6 messages"),
    "arguments": (2, '{"what":"it"}', '{"what":"other"}'),
    "tool": (2, "of idempotent", "of opaque"),
    "no call": (2, "allow for call 'c3'", "a message from tool"),
    "truncation": (3, "a context of 6 messages", "'rece'"),
    "stops": (3, "a context of 6 messages", "the end of the program"),
    "goes on": (3, "TaskEnded", "a message from user"),
    "result": (3, "TaskEnded", "another result"),
}
"""Change -> (turn, what is recorded there, what is asked for)."""


async def recorded(url: str) -> World:
    world = new_world(url)
    await world.run(model(), Harness())
    return world


async def replayed(world: World, program: Program) -> Report:
    return await replay(world.events(), program, setup=world.setup(model()))


def check(found: Divergence | None, turn: int, was: str, now: str) -> None:
    assert found is not None
    assert (found.turn, found.cause) == (turn, Cause.HARNESS)
    assert was in found.recorded, found
    assert now in found.asked, found


@pytest.mark.parametrize("change", CHANGES)
async def test_a_changed_harness_is_found_by_replay(change: str, service: tuple[Ledger, str]) -> None:
    counted, url = service
    world = await recorded(url)
    made, ran = dict(counted.asked), dict(world.ran)
    report = await replayed(world, Harness(change))
    check(report.divergence, *CHANGES[change])
    assert (dict(counted.asked), dict(world.ran)) == (made, ran), "a replay made an effect"


@pytest.mark.parametrize("change", [change for change in CHANGES if change not in ("goes on", "result")])
async def test_a_changed_harness_is_stopped_when_it_resumes(change: str, service: tuple[Ledger, str]) -> None:
    """Given a run that was killed before its end, a changed program gets Diverged and appends no work."""
    _, url = service
    world = new_world(url)
    world.die_at_point = None
    complete = await recorded(url)
    world.die_at_append = complete.appends - 2
    answers = model()
    assert await world.crash(answers, Harness())
    world.die_at_append = None
    before, asked = world.events(), dict(answers.asked)

    with pytest.raises(Diverged) as caught:
        await world.run(answers, Harness(change))

    check(caught.value.divergence, *CHANGES[change])
    work = [event for event in world.events()[len(before) :] if not event.name.startswith("Ownership")]
    assert work == []
    assert dict(answers.asked) == asked
    await world.run(answers, Harness())
    assert [event.name for event in world.events()].count("TaskEnded") == 1


async def test_a_program_that_goes_on_after_a_divergence_gets_it_again(service: tuple[Ledger, str]) -> None:
    _, url = service
    world = await recorded(url)

    async def stubborn(session: Session) -> None:
        for name in "bab":
            try:
                await session.step(name, value)
            except Diverged as error:
                last = error
        raise last

    report = await replayed(world, stubborn)
    check(report.divergence, *CHANGES["swapped steps"])


async def test_an_unchanged_harness_replays_clean_and_touches_nothing(service: tuple[Ledger, str]) -> None:
    counted, url = service
    world = await recorded(url)
    made, ran, answers = dict(counted.asked), dict(world.ran), model()
    report = await replay(world.events(), Harness(), setup=world.setup(answers))
    assert (report.clean, report.turns, report.ended) == (True, 3, True)
    assert report.given == len([event for event in world.events() if not event.name.startswith("Ownership")])
    assert (dict(counted.asked), dict(world.ran), answers.asked) == (made, ran, {})


@pytest.mark.parametrize("length", range(1, 30))
async def test_a_record_that_was_cut_off_replays_as_far_as_it_goes(length: int, service: tuple[Ledger, str]) -> None:
    _, url = service
    world = await recorded(url)
    events = world.events()[:length]
    report = await replay(events, Harness(), setup=world.setup(model()))
    assert (report.divergence, report.ended) == (None, any(event.name == "TaskEnded" for event in events))
    assert report.given == len([event for event in events if not event.name.startswith("Ownership")])


Change = Callable[[World], dict[str, Any]]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda world: {"prompt": "be rude"}, "prompt"),
        (lambda world: {"task": "another"}, "task"),
        (lambda world: {"agent": "other"}, "agent"),
        (lambda world: {"model": None}, "model"),
        (lambda world: {"sampling": {"temperature": "1"}}, "sampling"),
        (lambda world: {"tools": type(world.tools()).of(*list(world.tools())[:2])}, "tools"),
    ],
)
async def test_another_agent_than_the_recorded_one_is_told_what_differs(
    change: Change, what: str, service: tuple[Ledger, str]
) -> None:
    _, url = service
    world = await recorded(url)
    setup = replace(world.setup(model()), **change(world))
    report = await replay(world.events(), Harness(), setup=setup)
    check(report.divergence, 0, "TaskStarted", f"another {what}")


async def test_a_policy_that_rules_otherwise_is_found_at_the_call(service: tuple[Ledger, str]) -> None:
    _, url = service
    world = await recorded(url)
    setup = world.setup(model(), policy=NothingOpaque())
    report = await replay(world.events(), Harness(), setup=setup)
    check(report.divergence, 1, "allow for call 'c2'", "deny for call 'c2'")
