"""A wrapped OpenAI client: the SDK's own objects, each reply asked for once, everything else refused."""

from __future__ import annotations

import asyncio
import inspect
import json
import operator
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

from tests.support.ledger import Ledger, ledger
from tests.support.openai_server import asks_for, client_of, openai_server, says
from tests.support.sessions import TRAJECTORY, Program, World, new_world
from tracklog.producers.model_recorded import RecordedModel
from tracklog.producers.models import ModelRequest
from tracklog.producers.opening import opened
from tracklog.producers.replay import replay
from tracklog.producers.session import Session
from tracklog.producers.tools import tool as make_tool
from tracklog.producers.versions import Drift
from tracklog.schemas.errors import DriftRefused, InputError, ModelMalformed, SessionMisused
from tracklog.schemas.events import ContextBuilt, ModelReplied

TOOLS: Any = [{"type": "function", "function": {"name": "idempotent", "parameters": {"type": "object"}}}]
SCRIPT = (asks_for("c1", "idempotent", what="it"), says("it is booked"))


@pytest.fixture
def counted() -> Iterator[tuple[Ledger, World]]:
    with ledger() as (effects, url):
        yield effects, new_world(url)


def loop(
    world: World, url: str, *, stream: bool = False, on_token: Callable[[str], None] | None = None, **other: Any
) -> Program:
    """A plain SDK loop."""

    async def program(session: Session) -> None:
        client = session.wrap(client_of(url), backoff_s=0.0, on_token=on_token)
        (tool,) = (one for one in world.tools() if one.name == "idempotent")
        book = session.bind(tool)
        messages: list[Any] = [{"role": "user", "content": "book it"}]
        while True:
            asked = {"model": "m", "messages": messages, "tools": TOOLS, "temperature": 0.5, **other}
            message = await (streamed if stream else whole)(client, asked)
            messages.append(message)
            if not message.get("tool_calls"):
                await session.end(message["content"])
                return
            for call in message["tool_calls"]:
                output = await book(**json.loads(call["function"]["arguments"]))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})

    return program


async def whole(client: openai.AsyncOpenAI, asked: dict[str, Any]) -> dict[str, Any]:
    completion = await client.chat.completions.create(**asked)
    return dict(completion.choices[0].message.model_dump(exclude_none=True))


async def streamed(client: openai.AsyncOpenAI, asked: dict[str, Any]) -> dict[str, Any]:
    text, calls = "", []
    stream: Any = await client.chat.completions.create(**asked, stream=True)
    async for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            calls += [one.model_dump(exclude={"index"}) for one in choice.delta.tool_calls or ()]
    return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


async def run(world: World, program: Program, **changes: Any) -> None:
    async with (
        world.process() as (log, producer),
        opened(producer, TRAJECTORY, log=log, setup=world.setup(None, **changes)) as session,
    ):
        await program(session)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_loop_killed_after_every_append_asks_for_no_recorded_reply_again(
    counted: tuple[Ledger, World], stream: bool
) -> None:
    effects, world = counted
    with openai_server(*SCRIPT) as endpoint:
        program = loop(world, endpoint.url, stream=stream)
        world.die_at_append, killed = 2, 0
        while await world.until_dead(run(world, program)):
            killed += 1
        asked = len(endpoint.bodies)
        report = await replay(world.events(), program, setup=world.setup(None))
    assert killed > 3
    assert [body.model_served for body in world.bodies(ModelReplied)] == ["scripted-1"] * 2
    assert asked <= 4, "at most once more for each reply that was not stored before the kill"
    assert endpoint.bodies[0]["temperature"] == 0.5
    assert effects.made == {"c1": 1}
    assert report.clean
    assert len(endpoint.bodies) == asked


OTHER_TOOLS: Any = [{**TOOLS[0], "function": {**TOOLS[0]["function"], "description": "Books it."}}]


@pytest.mark.parametrize(
    ("asked", "what"),
    [({"tools": OTHER_TOOLS}, "tools"), ({"model": "n"}, "model"), ({"temperature": 0.7}, "sampling")],
)
async def test_a_run_that_is_asked_for_otherwise_now_goes_on_as_its_drift_says(
    counted: tuple[Ledger, World], asked: dict[str, Any], what: str
) -> None:
    effects, world = counted
    with openai_server(*SCRIPT) as endpoint:
        now = loop(world, endpoint.url, **asked)
        world.die_at_append = 6  # behind the first reply
        assert await world.until_dead(run(world, loop(world, endpoint.url)))
        world.die_at_append = None
        for drift in (Drift.REFUSE, Drift.PIN):
            with pytest.raises(DriftRefused, match=f"another {what}"):
                await run(world, now, drift=drift)
        assert len(endpoint.bodies) == 1

        await run(world, now)

        assert effects.made == {"c1": 1}
        assert len(endpoint.bodies) == 2
        first, second = (event.envelope.ext for event in world.events() if isinstance(event.body, ContextBuilt))
        assert json.loads(first["asked"]) == {"model": "m", "sampling": {"temperature": 0.5}}
        assert first != second
        for program in (loop(world, endpoint.url), now):
            report = await replay(world.events(), program, setup=world.setup(None))
            assert report.divergence is not None
            assert f"another {what}" in report.divergence.asked
        pinned = await replay(world.events(), now, setup=world.setup(None, drift=Drift.PIN))
        assert pinned.clean


@pytest.mark.parametrize("fault", ["429", "500", "cut"])
async def test_a_passing_fault_of_the_endpoint_leaves_one_record(counted: tuple[Ledger, World], fault: str) -> None:
    _, world = counted
    with openai_server(*SCRIPT, faults=[fault, fault]) as endpoint:
        await run(world, loop(world, endpoint.url))
    assert len(world.bodies(ModelReplied)) == 2
    assert len(endpoint.bodies) == 4


@pytest.mark.parametrize("fault", ["malformed", "too long"])
async def test_a_reply_of_no_use_is_the_sessions_error_and_the_run_goes_on_later(
    counted: tuple[Ledger, World], fault: str
) -> None:
    _, world = counted
    with openai_server(*SCRIPT, faults=[fault]) as endpoint:
        with pytest.raises(ModelMalformed):
            await run(world, loop(world, endpoint.url))
        assert world.bodies(ModelReplied) == []
        await run(world, loop(world, endpoint.url))
    assert len(world.bodies(ModelReplied)) == 2


async def test_tokens_are_passed_on_live_and_never_again(counted: tuple[Ledger, World]) -> None:
    _, world = counted
    heard: list[str] = []
    with openai_server(*SCRIPT) as endpoint:
        program = loop(world, endpoint.url, on_token=heard.append)
        await run(world, program)
        await run(world, program)
    assert heard == ["it", "is", "booked"]


async def test_what_a_session_cannot_record_is_refused(counted: tuple[Ledger, World]) -> None:
    _, world = counted

    async def program(session: Session) -> None:
        client = session.wrap(client_of(endpoint.url))
        with pytest.raises(SessionMisused, match="/v1/responses"):
            await client.responses.create(model="m", input="hello")
        with pytest.raises(SessionMisused, match="one reply"):
            await client.chat.completions.create(model="m", messages=[], n=2)
        with pytest.raises(InputError, match="cannot be wrapped"):
            session.wrap(openai.OpenAI(base_url=endpoint.url, api_key="none"))
        await session.end()

    with openai_server(*SCRIPT) as endpoint:
        await run(world, program)
    assert endpoint.bodies == []


async def test_a_bound_tool_is_called_as_the_model_proposed_or_not_at_all(counted: tuple[Ledger, World]) -> None:
    effects, world = counted

    async def program(session: Session) -> None:
        client = session.wrap(client_of(endpoint.url))
        (tool,) = (one for one in world.tools() if one.name == "idempotent")
        book = session.bind(tool)
        assert list(inspect.signature(book).parameters) == ["what"]
        asked = {"model": "m", "messages": [{"role": "user", "content": "book it"}], "tools": TOOLS}
        await whole(client, asked)
        with pytest.raises(SessionMisused, match="something else"):
            await book(what="something else")
        await whole(client, asked)  # a framework that went on regardless

    with openai_server(*SCRIPT) as endpoint, pytest.raises(SessionMisused, match="something else"):
        await run(world, program)
    assert effects.made == {}
    assert len(endpoint.bodies) == 1


@pytest.mark.parametrize("where", ["on another event loop", "after its session was left"])
async def test_a_bound_tool_is_refused_where_its_session_is_not(counted: tuple[Ledger, World], where: str) -> None:
    effects, world = counted
    (tool,) = (one for one in world.tools() if one.name == "idempotent")
    kept: list[Any] = []

    async def program(session: Session) -> None:
        client = session.wrap(openai.AsyncOpenAI(base_url=endpoint.url, api_key="none"))
        await whole(client, {"model": "m", "messages": [{"role": "user", "content": "book it"}], "tools": TOOLS})
        kept.append(session.bind(tool))
        if "loop" in where:
            with pytest.raises(SessionMisused, match=where):
                await asyncio.to_thread(lambda: asyncio.run(kept[0](what="it")))

    with openai_server(*SCRIPT) as endpoint:
        await run(world, program)
    with pytest.raises(SessionMisused, match=where):
        await kept[0](what="it")
    assert effects.asked == {}


def test_a_framework_that_is_given_a_tool_is_told_to_bind_it() -> None:
    @make_tool
    def book(flight: str) -> str:
        return flight

    with pytest.raises(AttributeError, match=r"session\.bind"):
        _ = operator.attrgetter("__name__")(book)


async def test_the_recorded_replies_of_a_wrapped_client_answer_by_what_was_asked(counted: tuple[Ledger, World]) -> None:
    _, world = counted
    with openai_server(*SCRIPT) as endpoint:
        await run(world, loop(world, endpoint.url))

    answer = await RecordedModel.of(world.events()).reply(ModelRequest(({"role": "user", "content": "book it"},)))

    assert [call.call_id for call in answer.tool_calls] == ["c1"]
