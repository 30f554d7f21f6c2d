"""Opened again by other versions of model, prompt, tools and code: pinned, crossed over, or refused (DESIGN §7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.ledger import Ledger, ledger
from tests.support.sessions import (
    PAST_GRACE_S,
    TRAJECTORY,
    ScriptedModel,
    World,
    asks,
    built_in,
    kinds,
    new_world,
    says,
)
from tracklog.producers.divergence import Diverged
from tracklog.producers.models import ModelAnswer, ModelRequest
from tracklog.producers.replay import replay
from tracklog.producers.setup import Setup
from tracklog.producers.tools import Tool, ToolSet, tool
from tracklog.producers.versions import Drift
from tracklog.schemas.errors import DriftRefused
from tracklog.schemas.events import DriftCrossed, ModelReplied, TaskEnded
from tracklog.schemas.fold import fold_all
from tracklog.schemas.lifecycle import Parked
from tracklog.schemas.state import State

APPENDS = 23
"""Of the undisturbed run by one set of versions."""
MIDDLE = 11
"""The first turn is recorded, the second is not."""


class Named(ScriptedModel):
    """A model under a name, which can be had under another one; keeps what it was asked."""

    def __init__(self, name: str) -> None:
        super().__init__(
            asks(("c1", "readonly"), ("c2", "probe")), asks(("c3", "readonly"), ("c4", "idempotent")), says("done")
        )
        self.name = name
        self.requests: list[tuple[str, ModelRequest]] = []
        self._as = name

    def named(self, name: str) -> Named:
        other = Named(name)
        other.requests, other.asked = self.requests, self.asked
        return other

    async def reply(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelAnswer:
        self.requests.append((self.name, request))
        return await super().reply(request, on_token=on_token)


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


def other_tools(world: World) -> ToolSet:
    """As those of the world, but one has another schema."""

    @tool(name="local", effect="local")
    def other(what: str, where: str = "") -> str:
        return f"wrote {what}"

    kept = [one for one in world.tools() if one.name != "local"]
    return ToolSet.of(*kept, other)


def newer(world: World, **changes: Any) -> dict[str, Any]:
    new = {"prompt": "be brief", "tools": other_tools(world), "code_version": "2", "sampling": {"seed": "1"}}
    return {**new, **changes}


async def killed(url: str, cut: int = MIDDLE) -> World:
    """A run by the old versions that was killed at an append."""
    world = new_world(url)
    world.die_at_append = cut
    assert await world.crash(Named("old"))
    world.die_at_append = None
    world.clock.advance(PAST_GRACE_S)
    return world


def state_of(world: World) -> State:
    return fold_all(State(TRAJECTORY), world.events())


def prompts(model: Named) -> list[Any]:
    return [request.messages[0]["content"] for _, request in model.requests]


def offered(model: Named) -> list[bool]:
    """Whether the new tools were offered, by request."""
    return ["where" in repr(request.tools) for _, request in model.requests]


async def replayed(world: World, setup: Setup) -> Any:
    return await replay(world.events(), built_in(setup), setup=setup)


async def test_a_run_that_crosses_over_is_answered_as_recorded_and_goes_on_by_the_new_versions(
    service: tuple[Ledger, str],
) -> None:
    counted, url = service
    world, model = await killed(url), Named("new")

    await world.run(model, **newer(world))

    assert [name for name, _ in model.requests] == ["new"] * 2
    assert (prompts(model), offered(model)) == (["be brief"] * 2, [True] * 2)
    assert model.requests[0][1].sampling == {"seed": "1"}
    assert counted.made == {"c2": 1, "c4": 1}
    (crossed,) = world.bodies(DriftCrossed)
    assert (crossed.old_model, crossed.new_model) == ("old", "new")
    assert crossed.old_prompt != crossed.new_prompt
    assert crossed.old_tools != crossed.new_tools
    task = state_of(world).task
    assert task is not None
    assert (task.model, task.prompt, task.tools, task.code_version) == (
        "new",
        crossed.new_prompt,
        crossed.new_tools,
        "2",
    )
    assert state_of(world).irregular == 0


@pytest.mark.parametrize("cut", range(1, APPENDS - 1))
async def test_a_run_that_crossed_anywhere_replays_clean_by_what_it_crossed_to(
    cut: int, service: tuple[Ledger, str]
) -> None:
    """Given a run that was killed anywhere and crossed over, the new agent replays it, and the old one does not."""
    _, url = service
    world, model = await killed(url, cut), Named("new")
    started, before = "TaskStarted" in kinds(world.events()), len(world.bodies(ModelReplied))
    new = newer(world, drift=Drift.CROSS)

    await world.run(model, **new)

    assert len(world.bodies(DriftCrossed)) == started
    assert len(model.requests) == 3 - before
    report = await replayed(world, world.setup(model, **new))
    assert (report.divergence, report.ended) == (None, True)
    old = await replayed(world, world.setup(Named("old")))
    assert "another model, sampling, prompt, tools" in str(old.divergence)


@pytest.mark.parametrize("cut", range(APPENDS - MIDDLE + 1))
async def test_a_crossing_that_is_killed_anywhere_is_written_once(cut: int, service: tuple[Ledger, str]) -> None:
    counted, url = service
    world, model = await killed(url), Named("new")
    new = newer(world)
    world.die_at_append = cut
    await world.crash(model, **new)
    world.die_at_append = None
    world.clock.advance(PAST_GRACE_S)

    await world.run(model, **new)

    assert (len(world.bodies(DriftCrossed)), len(world.bodies(TaskEnded))) == (1, 1)
    assert counted.made["c4"] == 1
    assert counted.made["c2"] <= 1
    assert (await replayed(world, world.setup(model, **new))).clean


async def test_a_pinned_run_is_shown_what_is_recorded_by_the_recorded_model(service: tuple[Ledger, str]) -> None:
    _, url = service
    world, model = await killed(url), Named("new")
    new = newer(world, drift=Drift.PIN)

    await world.run(model, **new)

    assert [name for name, _ in model.requests] == ["old"] * 2
    assert (prompts(model), offered(model)) == (["be kind"] * 2, [False] * 2)
    assert model.requests[0][1].sampling == {}
    assert world.bodies(DriftCrossed) == []
    assert (await replayed(world, world.setup(model, **new))).clean
    assert (await replayed(world, world.setup(Named("old")))).clean
    other = await replayed(world, world.setup(model, **newer(world)))
    assert "another model, sampling, prompt, tools" in str(other.divergence)


async def test_a_model_that_cannot_be_had_by_its_recorded_name_is_not_pinned(service: tuple[Ledger, str]) -> None:
    _, url = service
    world = await killed(url)
    with pytest.raises(DriftRefused, match="pinned to model 'old'"):
        await world.run(ScriptedModel(), drift=Drift.PIN)


@pytest.mark.parametrize("change", ["model", "prompt", "tools", "code", "sampling"])
async def test_what_must_not_change_parks_the_run_until_it_is_as_it_was(
    change: str, service: tuple[Ledger, str]
) -> None:
    _, url = service
    world, old = await killed(url), Named("old")
    names = {"tools": "tools", "code": "code_version", "sampling": "sampling", "prompt": "prompt"}
    changed = {} if change == "model" else {names[change]: newer(world)[names[change]]}
    before = kinds(world.events())

    with pytest.raises(DriftRefused, match=f"another {change}"):
        await world.run(Named("new") if change == "model" else old, drift=Drift.REFUSE, **changed)

    assert kinds(world.events()) == [*before, "OwnershipClaimed", "OwnershipReleased"]
    assert state_of(world).parked == Parked.DRIFT
    await world.run(old, drift=Drift.REFUSE)
    assert world.bodies(DriftCrossed) == []


async def test_a_tool_that_changed_under_a_call_in_doubt_is_refused_unless_told_otherwise(
    service: tuple[Ledger, str],
) -> None:
    """Given a call of the old tool without an outcome, the new tool settles nothing; the old one does."""
    counted, url = service
    world = new_world(url)
    world.die_at_point = "after the effect"
    model = ScriptedModel(asks(("c1", "idempotent")), says("done"))
    assert await world.crash(model)
    world.die_at_point = None

    def changed(one: Tool) -> Tool:
        return replace(one, schema={**one.schema, "description": "other"}) if one.name == "idempotent" else one

    new = ToolSet.of(*(changed(one) for one in world.tools()))
    with pytest.raises(DriftRefused, match="'idempotent' is another one now"):
        await world.run(model, tools=new)
    with pytest.raises(DriftRefused, match="'idempotent' is gone now"):
        await world.run(model, tools=ToolSet.of())
    assert (counted.made, state_of(world).parked) == ({"c1": 1}, Parked.DRIFT)

    world.die_at_append = 2  # settled by the old tool, then killed
    assert await world.crash(model)
    world.die_at_append = None
    await world.run(model, tools=new)

    assert counted.made == {"c1": 1}
    assert (len(world.bodies(DriftCrossed)), len(world.bodies(TaskEnded))) == (1, 1)


async def test_a_recorded_call_of_a_tool_that_is_gone_stands(service: tuple[Ledger, str]) -> None:
    _, url = service
    world, model = await killed(url), Named("old")
    left = ToolSet.of(*(one for one in world.tools() if one.name != "probe"))
    await world.run(model, tools=left)
    assert len(world.bodies(DriftCrossed)) == 1
    assert (await replayed(world, world.setup(model, tools=left))).clean


@pytest.mark.parametrize("change", [{"task": "another"}, {"agent": "other"}])
async def test_another_task_or_agent_is_another_trajectory(change: dict[str, Any], service: tuple[Ledger, str]) -> None:
    _, url = service
    world = await killed(url)
    with pytest.raises(Diverged, match=f"another {next(iter(change))}"):
        await world.run(Named("old"), drift=Drift.CROSS, **change)
    assert world.bodies(DriftCrossed) == []
