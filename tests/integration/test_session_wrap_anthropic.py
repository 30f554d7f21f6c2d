"""A wrapped Anthropic client: the SDK's own objects, each reply asked for once, each message recorded once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.support.anthropic_server import THOUGHT, anthropic_server, asks_for, client_of, says
from tests.support.ledger import Ledger, ledger
from tests.support.sessions import TRAJECTORY, Program, World, new_world
from tracklog.producers.opening import opened
from tracklog.producers.replay import replay
from tracklog.producers.session import Session
from tracklog.schemas.errors import InputError, ModelMalformed, SessionMisused
from tracklog.schemas.events import ContextBuilt, MessageReceived, ModelReplied

TOOLS: Any = [{"name": "idempotent", "description": "Books.", "input_schema": {"type": "object"}}]
CALLS = [*asks_for("t1", "idempotent", what="it"), *asks_for("t1", "idempotent", what="that")]
SCRIPT = ([THOUGHT, *says("Booking."), *CALLS], says("it is booked"))


@pytest.fixture
def counted() -> Iterator[tuple[Ledger, World]]:
    with ledger() as (effects, url):
        yield effects, new_world(url)


def loop(world: World, url: str, *, way: str = "whole", **options: Any) -> Program:
    """A plain SDK loop, which marks its last message for the cache."""

    async def program(session: Session) -> None:
        client = session.wrap(client_of(url), backoff_s=0.0, **options)
        (tool,) = (one for one in world.tools() if one.name == "idempotent")
        book = session.bind(tool)
        messages: list[Any] = [{"role": "user", "content": "book it"}]
        while True:
            asked = {"model": "m", "max_tokens": 64, "system": "be quick", "messages": marked(messages), "tools": TOOLS}
            message = await WAYS[way](client, asked)
            messages.append({"role": "assistant", "content": message.content})
            calls = [block for block in message.content if block.type == "tool_use"]
            if not calls:
                await session.end(message.content[-1].text)
                return
            results = []
            for call in calls:
                output = [{"type": "text", "text": await book(**call.input)}]
                results.append({"type": "tool_result", "tool_use_id": call.id, "content": output})
            messages.append({"role": "user", "content": results})

    return program


def marked(messages: list[Any]) -> list[Any]:
    last = messages[-1]["content"]
    blocks = [{"type": "text", "text": last}] if isinstance(last, str) else last
    mark = {"cache_control": {"type": "ephemeral"}}
    return [*messages[:-1], {**messages[-1], "content": [*blocks[:-1], {**blocks[-1], **mark}]}]


async def whole(client: Any, asked: dict[str, Any]) -> Any:
    return await client.messages.create(**asked)


async def beta(client: Any, asked: dict[str, Any]) -> Any:
    return await client.beta.messages.create(**asked, betas=["newest-2026-11-30"])


async def streamed(client: Any, asked: dict[str, Any]) -> Any:
    async with client.messages.stream(**asked) as stream:
        return await stream.get_final_message()


WAYS = {"whole": whole, "beta": beta, "streamed": streamed}


async def run(world: World, program: Program) -> None:
    async with (
        world.process() as (log, producer),
        opened(producer, TRAJECTORY, log=log, setup=world.setup(None)) as session,
    ):
        await program(session)


@pytest.mark.parametrize("way", sorted(WAYS))
async def test_a_loop_killed_after_every_append_asks_for_no_recorded_reply_again(
    counted: tuple[Ledger, World], way: str
) -> None:
    effects, world = counted
    with anthropic_server(*SCRIPT) as endpoint:
        program = loop(world, endpoint.url, way=way)
        world.die_at_append, killed = 2, 0
        while await world.until_dead(run(world, program)):
            killed += 1
        asked = len(endpoint.bodies)
        report = await replay(world.events(), program, setup=world.setup(None))

    assert killed > 3
    assert asked <= 4, "at most once more for each reply that was not stored before the kill"
    assert effects.made == {"t1": 1, "t1~2": 1}
    assert report.clean
    assert len(endpoint.bodies) == asked
    said = endpoint.bodies[-1]["messages"][1]["content"]
    assert [block["type"] for block in said] == ["thinking", "text", "tool_use", "tool_use"]
    assert said[0] == THOUGHT
    assert "cache_control" in endpoint.bodies[0]["messages"][-1]["content"][-1]
    assert endpoint.headers[0].get("anthropic-beta", "") == ("newest-2026-11-30" if way == "beta" else "")


async def test_each_message_has_one_event_and_the_context_is_in_chat_form(counted: tuple[Ledger, World]) -> None:
    _, world = counted
    with anthropic_server(*SCRIPT) as endpoint:
        await run(world, loop(world, endpoint.url))

    assert [body.message.text for body in world.bodies(MessageReceived)] == ["be quick", "book it"]
    first, second = world.bodies(ContextBuilt)
    assert (first.messages, second.messages) == (2, 5)
    assert [edit.op.value for edit in second.edits] == ["keep", "add"]
    reply, _ = world.bodies(ModelReplied)
    assert (reply.stop_reason, reply.usage.cached_tokens, reply.model_served) == ("tool_use", 100, "scripted-1")


async def test_tokens_are_passed_on_live_and_never_again(counted: tuple[Ledger, World]) -> None:
    _, world = counted
    heard: list[str] = []
    with anthropic_server(*SCRIPT) as endpoint:
        program = loop(world, endpoint.url, on_token=heard.append)
        await run(world, program)
        await run(world, program)
    assert heard == ["Booking.", "it ", "is ", "booked"]


async def test_what_a_session_cannot_record_is_refused(counted: tuple[Ledger, World]) -> None:
    _, world = counted

    async def program(session: Session) -> None:
        client = session.wrap(client_of(endpoint.url))
        with pytest.raises(SessionMisused, match="count_tokens"):
            await client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "x"}])
        with pytest.raises(SessionMisused, match="/v1/models"):
            await client.models.list()
        for other in (anthropic.Anthropic(base_url=endpoint.url, api_key="none"), object()):
            with pytest.raises(InputError, match="cannot be wrapped"):
                session.wrap(other)
        await session.end()

    with anthropic_server() as endpoint:
        await run(world, program)
    assert endpoint.bodies == []


async def test_an_error_of_the_session_reaches_the_program_as_it_is(counted: tuple[Ledger, World]) -> None:
    _, world = counted
    with anthropic_server(*SCRIPT, faults=["malformed"]) as endpoint, pytest.raises(ModelMalformed):
        await run(world, loop(world, endpoint.url))
