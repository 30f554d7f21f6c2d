"""Planted changes of a harness, and of what is around it: each is found by replay at its turn, with its cause."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pytest

from tests.support.changed_harness import (
    FILES,
    PROMPT,
    READINGS,
    TOOLS,
    Harness,
    Policy,
    Reads,
    answers,
    asked,
    find,
    rate,
    recorded_run,
)
from tests.support.sessions import ScriptedModel, World, says
from tracklog.producers.again import Again
from tracklog.producers.divergence import Cause
from tracklog.producers.models import Reply
from tracklog.producers.replay import Report, replay
from tracklog.producers.session import Result, Session
from tracklog.producers.tools import ToolSet, tool
from tracklog.schemas.values import Budgets, ToolCall

HARNESS, ENVIRONMENT, MODEL = Cause.HARNESS, Cause.ENVIRONMENT, Cause.MODEL


class Planted(NamedTuple):
    """A change, and where it is found. `recorded` and `asked` are parts of both sides."""

    turn: int
    cause: Cause
    recorded: str
    asked: str
    harness: Harness = Harness()
    parts: dict[str, Any] = {}  # noqa: RUF012 - never written to
    again: tuple[Again, ...] = ()


class Parser(Harness):
    def parsed(self, text: str) -> str:
        return text.partition('"gate": "')[2][:2]


class ArgumentParser(Harness):
    async def call(self, session: Session, call: ToolCall, turn: int) -> Result:
        if turn == 2:
            call = call.model_copy(update={"arguments": call.arguments.replace(" ", "")})
        return await super().call(session, call, turn)


class Truncation(Harness):
    def cut(self, text: str) -> str:
        return text[:20]


class Strip(Harness):
    def shown(self, messages: list[Any], turn: int) -> list[Any]:
        return [{**one, "content": f"{one['content']} "} if one["role"] == "user" else one for one in messages]


class CompactsLater(Harness):
    messages_max = 9


class KeepsMore(Harness):
    keep = 5


class Reversed(Harness):
    def told(self, results: list[Any], turn: int) -> list[Any]:
        return super().told(results, turn)[::-1]


class StepsSwapped(Harness):
    async def before(self, session: Session, turn: int) -> None:
        if turn == 2:
            await session.step("wind", lambda: 3)
            await session.step("weather", lambda: "fair")


class StepMissing(Harness):
    async def before(self, session: Session, turn: int) -> None:
        if turn == 2:
            await session.step("weather", lambda: "fair")


class StepMore(Harness):
    async def before(self, session: Session, turn: int) -> None:
        await super().before(session, turn)
        if turn == 4:
            await session.step("tide", lambda: 1)


class SetOrder(Harness):
    def ordered(self, names: Sequence[str]) -> Sequence[str]:
        return list(set(names))  # eight names: in the order of their sort once in 40,320 processes


class Unsorted(Harness):
    def ordered(self, names: Sequence[str]) -> Sequence[str]:
        return names


class LocalTime(Harness):
    def when(self, time_us: int) -> str:
        return datetime.fromtimestamp(time_us / 1e6).astimezone().isoformat()


class SystemNote(Harness):
    def role(self) -> str:
        return "system"


class FloatFormat(Harness):
    def price(self, output: str) -> str:
        return f"{1234.5:,.2f} for {output}"


class DroppedResult(Harness):
    def told(self, results: list[Any], turn: int) -> list[Any]:
        return [] if turn == 2 else super().told(results, turn)


class DoubledResult(Harness):
    def told(self, results: list[Any], turn: int) -> list[Any]:
        told = super().told(results, turn)
        return told * 2 if turn == 3 else told


class Retries(Harness):
    async def call(self, session: Session, call: ToolCall, turn: int) -> Result:
        made = await super().call(session, call, turn)
        return await super().call(session, call, turn) if turn == 3 else made


class SkipsCall(Harness):
    async def made(self, session: Session, reply: Reply, turn: int) -> list[Result]:
        return [await session.call_tool(call) for call in reply.tool_calls[:1]]


class MakesItUp(Harness):
    async def made(self, session: Session, reply: Reply, turn: int) -> list[Result]:
        if turn == 4:
            await session.call_tool(ToolCall(call_id="c9", tool="rate", arguments="{}"))
        return await super().made(session, reply, turn)


class Stops(Harness):
    def turns(self) -> int:
        return 4


class GoesOn(Harness):
    def turns(self) -> int:
        return 6


class OtherResult(Harness):
    async def finish(self, session: Session) -> None:
        await session.end("not so well")


class Raises(Harness):
    def price(self, output: str) -> str:
        return output.split()[2]


class SmallContext(Harness):
    def shown(self, messages: list[Any], turn: int) -> list[Any]:
        return messages[-3:] if turn == 4 else messages


@tool(name="find", effect="readonly")
def find_more(city: str, limit: int = 3, direct: bool = False) -> str:
    """Finds flights."""
    raise AssertionError("a replay called a tool")


@tool(name="find", effect="readonly")
def find_five(city: str, limit: int = 5) -> str:
    """Finds flights."""
    raise AssertionError("a replay called a tool")


@tool(name="find", effect="readonly")
def find_worded(city: str, limit: int = 3) -> str:
    """Finds all flights."""
    raise AssertionError("a replay called a tool")


def other_reply(turn: int, answer: Any) -> dict[str, Any]:
    given = answers()
    given[turn - 1] = answer
    return {"model": ScriptedModel(*given)}


class WeatherChanges(Harness):
    async def before(self, session: Session, turn: int) -> None:
        if turn == 2:
            await session.step("weather", lambda: "storm")
            await session.step("wind", lambda: 3)


def tools(*changed: Any) -> dict[str, Any]:
    names = {one.name for one in changed}
    return {"tools": ToolSet.of(*changed, *(one for one in TOOLS if one.name not in names))}


TOLD = "a message from tool: '3 flights to Oslo: TL100 at 100:00, TL10'"
BOOKED = "'charged 1234.50 for booked TL101'"
CHANGES: dict[str, Planted] = {
    "prompt text": Planted(0, HARNESS, "TaskStarted", "another prompt", parts={"prompt": PROMPT + " Be brief."}),
    "tool schema": Planted(0, HARNESS, "TaskStarted", "another tools", parts=tools(find_more)),
    "argument default": Planted(0, HARNESS, "TaskStarted", "another tools", parts=tools(find_five)),
    "tool description": Planted(0, HARNESS, "TaskStarted", "another tools", parts=tools(find_worded)),
    "tool removed": Planted(0, HARNESS, "TaskStarted", "another tools", parts={"tools": ToolSet.of(find, rate)}),
    "temperature": Planted(0, HARNESS, "TaskStarted", "another sampling", parts={"sampling": {"temperature": "1"}}),
    "set order": Planted(0, HARNESS, "notes: bern.md, cairo.md", "notes: ", SetOrder()),
    "unsorted names": Planted(0, HARNESS, "notes: bern.md", f"notes: {', '.join(FILES[:2])}", Unsorted()),
    "time zone": Planted(0, HARNESS, "+00:00", "+09:00", LocalTime()),
    "white space": Planted(0, HARNESS, "a message from user: 'notes", "+00:00 '", Strip()),
    "policy": Planted(
        3, HARNESS, "allow for call 'c4'", "deny for call 'c4': no book", parts={"policy": Policy("book")}
    ),
    "budget": Planted(
        2,
        HARNESS,
        "allow for call 'c3'",
        "deny for call 'c3': budget tool_calls is used up",
        parts={"policy": Policy(budgets=Budgets(tool_calls=2))},
    ),
    "call left out": Planted(1, HARNESS, "allow for call 'c2'", TOLD, SkipsCall()),
    "truncation": Planted(1, HARNESS, TOLD, "a message from tool: '3 flights to Oslo: T'", Truncation()),
    "order of results": Planted(1, HARNESS, TOLD, "from tool: '3 flights to Rome: ", Reversed()),
    "order of steps": Planted(1, HARNESS, "step 'weather'", "step 'wind'", StepsSwapped()),
    "step missing": Planted(1, HARNESS, "step 'wind'", TOLD, StepMissing()),
    "step more": Planted(3, HARNESS, f"from user: {BOOKED}", "step 'tide'", StepMore()),
    "arguments": Planted(2, HARNESS, '{"currency": "NOK"}', '{"currency":"NOK"}', ArgumentParser()),
    "dropped tool message": Planted(3, HARNESS, "a context of 7 messages", "a context of 6 messages", DroppedResult()),
    "retry of a tool": Planted(3, HARNESS, "a summary of turns 1 to 3", "call 'c4' of book", Retries()),
    "message role": Planted(3, HARNESS, f"from user: {BOOKED}", f"from system: {BOOKED}", SystemNote()),
    "float format": Planted(3, HARNESS, BOOKED, "'charged 1,234.50 for booked TL101'", FloatFormat()),
    "parser raises": Planted(3, HARNESS, "a summary of turns 1 to 3", "IndexError: list index out of range", Raises()),
    "duplicated message": Planted(3, HARNESS, BOOKED, "a message from tool: 'booked TL101'", DoubledResult()),
    "smaller context": Planted(4, HARNESS, "a context of ", "a context of 3 messages", SmallContext()),
    "call made up": Planted(4, HARNESS, "no call 'c9' in any reply", "call 'c9' of rate", MakesItUp()),
    "parser": Planted(4, HARNESS, "'confirm 12A'", "'confirm B4'", Parser()),
    "compaction later": Planted(4, HARNESS, "a summary of turns 1 to 4", "user: 'confirm 12A'", CompactsLater()),
    "compaction keeps more": Planted(4, HARNESS, "a context of 7 messages", "a context of 8 messages", KeepsMore()),
    "stops": Planted(4, HARNESS, "a summary of turns 1 to 4", "the end of the task", Stops()),
    "goes on": Planted(5, HARNESS, "TaskEnded", "a context", GoesOn()),
    "result": Planted(5, HARNESS, "TaskEnded", "another result", OtherResult()),
    "step comes out otherwise": Planted(
        1, ENVIRONMENT, "'\"fair\"'", "'\"storm\"'", WeatherChanges(), again=(Again.STEPS,)
    ),
    "model says otherwise": Planted(
        4,
        MODEL,
        "12A",
        '\'{"role":"assistant","content":"no"}\'',
        parts=other_reply(4, says("no")),
        again=(Again.MODEL,),
    ),
    "model asks for less": Planted(
        1,
        MODEL,
        '{"id":"c2"',
        "Oslo",
        parts=other_reply(1, asked(("c1", "find", '{"city":"Oslo"}'))),
        again=(Again.MODEL,),
    ),
    **{name: Planted(3, ENVIRONMENT, "", what, Reads(reading)) for name, (reading, what) in READINGS.items()},
}


@pytest.fixture(scope="module")
def world() -> World:
    """Recorded once: a replay writes nothing."""
    return asyncio.run(recorded_run())


@pytest.fixture(autouse=True)
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Where the replays are: the run was recorded elsewhere."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def replayed(world: World, planted: Planted) -> Report:
    parts = {"tools": TOOLS, "prompt": PROMPT, **planted.parts}
    setup = world.setup(parts.pop("model", ScriptedModel(*answers())), **parts)
    return await replay(world.events(), planted.harness, setup=setup, again=planted.again)


@pytest.mark.parametrize("name", CHANGES)
async def test_a_planted_change_is_found_at_its_turn_with_its_cause(name: str, world: World) -> None:
    planted = CHANGES[name]
    found = (await replayed(world, planted)).divergence
    assert found is not None
    assert (found.turn, found.cause) == (planted.turn, planted.cause), found
    assert planted.recorded in found.recorded, found
    assert planted.asked in found.asked, found
    if name in READINGS:
        assert "outside the session, at " in found.asked


async def test_the_unchanged_harness_replays_clean_wherever_it_is(world: World) -> None:
    for again in ((), (Again.STEPS,), (Again.MODEL,), tuple(Again)):
        report = await replayed(world, Planted(0, HARNESS, "", "", again=again))
        assert (report.clean, report.turns, report.ended) == (True, 5, True), report.divergence


def test_there_are_enough_of_them() -> None:
    assert len(CHANGES) >= 20
    assert {planted.cause for planted in CHANGES.values()} == set(Cause)
