"""An agent over Anthropic's model, killed on the way: each reply asked for once, thinking sent back as it came."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.anthropic_server import THOUGHT, Endpoint, anthropic_server, asks_for, client_of, says
from tests.support.ledger import Ledger, ledger
from tests.support.sessions import TRAJECTORY, World, built_in, new_world
from tracklog.producers.model_anthropic import AnthropicModel
from tracklog.producers.opening import opened
from tracklog.producers.replay import replay
from tracklog.producers.versions import Drift
from tracklog.schemas.errors import DriftRefused, ModelMalformed
from tracklog.schemas.events import ModelReplied, TaskStarted, ToolResult

CALLS = [*asks_for("t1", "idempotent", what="it"), *asks_for("t1", "readonly", what="x")]
SCRIPT = ([THOUGHT, *says("Booking."), *CALLS], [THOUGHT, *says("it is booked")])


@pytest.fixture
def counted() -> Iterator[tuple[Ledger, World]]:
    with ledger() as (effects, url):
        yield effects, new_world(url)


def setup(world: World, endpoint: Endpoint, **sampling: str) -> Any:
    client = client_of(endpoint.url, "secret-key")
    return replace(world.setup(None), model=AnthropicModel(client, "m", sampling=sampling, backoff_s=0.0))


async def run(world: World, endpoint: Endpoint, made: Any = None) -> None:
    made = made or setup(world, endpoint)
    async with world.process() as (log, producer), opened(producer, TRAJECTORY, log=log, setup=made) as session:
        await built_in(made)(session)


async def test_killed_after_every_append_it_goes_on_with_the_thoughts_that_it_had(
    counted: tuple[Ledger, World],
) -> None:
    effects, world = counted
    with anthropic_server(*SCRIPT) as endpoint:
        world.die_at_append, killed = 2, 0
        while await world.until_dead(run(world, endpoint)):
            killed += 1
        asked = len(endpoint.bodies)
        report = await replay(world.events(), built_in(setup(world, endpoint)), setup=setup(world, endpoint))
    assert killed > 3
    assert effects.made == {"t1": 1}
    assert report.clean
    assert len(endpoint.bodies) == asked <= 4, "at most once more for each reply that was not stored before the kill"
    later = [body["messages"] for body in endpoint.bodies if len(body["messages"]) > 1]
    assert later
    for _, said, told in later:
        assert said["content"][:2] == SCRIPT[0][:2]
        assert [block["id"] for block in said["content"][2:]] == [block["tool_use_id"] for block in told["content"]]
    replies = world.bodies(ModelReplied)
    assert [(one.stop_reason, one.usage.cached_tokens) for one in replies] == [("tool_use", 100), ("end_turn", 100)]
    assert [call.call_id for call in replies[0].tool_calls] == ["t1", "t1~2"]
    assert "secret-key" not in str([event.body for event in world.events()])


@pytest.mark.parametrize("fault", ["429", "500", "529", "cut"])
async def test_a_passing_fault_leaves_one_record(counted: tuple[Ledger, World], fault: str) -> None:
    _, world = counted
    with anthropic_server(*SCRIPT, faults=[fault, fault]) as endpoint:
        await run(world, endpoint)
    assert len(world.bodies(ModelReplied)) == 2
    assert len(endpoint.bodies) == 4


@pytest.mark.parametrize("fault", ["malformed", "too long"])
async def test_a_reply_of_no_use_is_an_error_and_the_run_goes_on_later(
    counted: tuple[Ledger, World], fault: str
) -> None:
    _, world = counted
    with anthropic_server(*SCRIPT, faults=[fault]) as endpoint:
        with pytest.raises(ModelMalformed):
            await run(world, endpoint)
        assert world.bodies(ModelReplied) == []
        await run(world, endpoint)
    assert [json.loads(body.reply.text)["content"] for body in world.bodies(ModelReplied)] == [
        "Booking.",
        "it is booked",
    ]
    assert len(world.bodies(ToolResult)) == 2


async def test_the_sampling_of_a_model_is_recorded_and_another_one_is_drift(counted: tuple[Ledger, World]) -> None:
    _, world = counted
    with anthropic_server(*SCRIPT) as endpoint:
        world.die_at_append = 5
        assert await world.until_dead(run(world, endpoint))
        world.die_at_append = None
        cooler = setup(world, endpoint, temperature="0.1")
        with pytest.raises(DriftRefused, match="another sampling"):
            await run(world, endpoint, replace(cooler, drift=Drift.REFUSE))

        await run(world, endpoint, replace(cooler, drift=Drift.PIN))

        assert [body.get("temperature") for body in endpoint.bodies] == [None, None]
    assert [dict(body.sampling) for body in world.bodies(TaskStarted)] == [{"max_tokens": "8192"}]
