"""Forks: another run from a turn of a recorded one; nothing that happened in the origin happens again (DESIGN §7)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.test_session_drift import Named, prompts
from tests.support.ledger import Ledger, ledger
from tests.support.sessions import PAST_GRACE_S, TRAJECTORY, World, asks, built_in, new_world, says
from tests.support.writing import read_accepted
from tracklog.producers.divergence import Diverged
from tracklog.producers.fork import Changes, forked
from tracklog.producers.lineage import read_inherited
from tracklog.producers.opening import opened
from tracklog.producers.policy import ALLOW, Decision, Situation, deny
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.replay import Report, replay
from tracklog.producers.session import Session
from tracklog.producers.setup import Setup
from tracklog.producers.tools import Tool
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError
from tracklog.schemas.events import Authorized, ContextBuilt, ModelReplied, TaskEnded, TaskStarted, ToolResult
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import State
from tracklog.schemas.values import Budgets, Ref, ResultStatus, Ruling, Settled, ToolCall

FORK = "trip-1b"
UNCHANGED = Changes()
APPENDS = 14
"""Of an undisturbed fork at the second turn."""


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


async def origin_of(url: str) -> World:
    """Three turns: c1 readonly and c2 probe, c3 readonly and c4 idempotent, the end."""
    world = new_world(url)
    await world.run(Named("old"))
    return world


class Other(Named):
    """Asks for something else in its second reply, and ends one turn later."""

    def __init__(self, name: str = "new", *second: tuple[str, str]) -> None:
        super().__init__(name)
        second = second or (("d1", "probe"), ("d2", "opaque"))
        self.answers = (self.answers[0], asks(*second), says("other end"))


async def run_fork(
    world: World,
    model: Named,
    *,
    trajectory_id: str = FORK,
    origin: str = TRAJECTORY,
    turn: int = 2,
    changes: Changes = UNCHANGED,
    allow: tuple[str, ...] = (),
    program: Any = None,
    **setup_changes: Any,
) -> None:
    setup = world.setup(model, **setup_changes)
    async with (
        world.process() as (log, producer),
        forked(
            producer,
            trajectory_id,
            origin=origin,
            turn=turn,
            log=log,
            setup=setup,
            changes=changes,
            allow=allow,
        ) as session,
    ):
        await (program or built_in(changes.applied(setup)))(session)


async def resume(world: World, setup: Setup, trajectory_id: str = FORK) -> None:
    """As any other trajectory is."""
    async with world.process() as (log, producer), opened(producer, trajectory_id, log=log, setup=setup) as session:
        await built_in(setup)(session)


def events(world: World, trajectory_id: str = FORK) -> list[Event]:
    return read_accepted(world.new_log(), trajectory_id)


def bodies(world: World, kind: type, trajectory_id: str = FORK) -> list[Any]:
    return [event.body for event in events(world, trajectory_id) if isinstance(event.body, kind)]


async def replayed(world: World, setup: Setup, trajectory_id: str = FORK) -> Report:
    own = events(world, trajectory_id)
    inherited = read_inherited(world.new_log(), "tracklog.events", own)
    return await replay(own, built_in(setup), setup=setup, inherited=inherited)


async def test_a_fork_goes_on_from_its_turn_with_what_was_changed(service: tuple[Ledger, str]) -> None:
    counted, url = service
    world, model = await origin_of(url), Other()
    made, before = dict(counted.made), events(world, TRAJECTORY)
    changes = Changes(prompt="be brief")

    await run_fork(world, model, changes=changes)

    assert events(world, TRAJECTORY) == before
    assert dict(counted.made) == made, "an effect of the origin, or a new one"
    assert prompts(model) == ["be brief"] * 2
    assert [len(request.messages) for _, request in model.requests] == [5, 8]
    (started,) = bodies(world, TaskStarted)
    assert (started.origin, started.inherited_turn, started.model) == (
        Ref(trajectory_id=TRAJECTORY, seq=10),
        2,
        "new",
    )
    state = fold_all(State(FORK), events(world))
    assert (state.irregular, state.turn, state.status.value) == (0, 3, "completed")
    assert (state.spent.model_calls, state.tenant) == (2, "default")
    setup = world.setup(model, prompt="be brief")
    assert (await replayed(world, setup)).clean
    assert "another model" in str((await replayed(world, world.setup(Named("old")))).divergence)


async def test_what_a_fork_inherits_is_named_and_not_copied(service: tuple[Ledger, str]) -> None:
    _, url = service
    world = await origin_of(url)
    await run_fork(world, Other())
    first, second = bodies(world, ContextBuilt)
    named = [(edit.trajectory_id, seq) for edit in first.edits for seq in edit.seqs]
    assert named == [(TRAJECTORY, seq) for seq in (1, 2, 4, 9, 10)]
    assert {edit.trajectory_id for edit in second.edits} == {None}
    assert first.context_hash == next(
        body.context_hash for body in bodies(world, ContextBuilt, TRAJECTORY) if body.messages == 5
    )
    start = next(event for event in events(world) if isinstance(event.body, TaskStarted))
    assert start.envelope.causes == (Ref(trajectory_id=TRAJECTORY, seq=10),)
    assert start.envelope.lamport > next(e for e in events(world, TRAJECTORY) if e.envelope.seq == 10).envelope.lamport


async def test_a_sandboxed_call_is_given_what_the_origin_got_or_denied(service: tuple[Ledger, str]) -> None:
    counted, url = service
    world, model = await origin_of(url), Other("new", ("d1", "probe"), ("d2", "opaque"), ("d3", "readonly"))
    made, ran = dict(counted.made), dict(world.ran)

    await run_fork(world, model)

    recorded = next(body for body in bodies(world, ToolResult, TRAJECTORY) if body.call_id == "c2")
    results = {body.call_id: body for body in bodies(world, ToolResult)}
    assert (results["d1"].settled, results["d1"].output) == (Settled.RECORDED, recorded.output)
    assert (results["d2"].status, results["d2"].output.text) == (ResultStatus.DENIED, "refused: sandboxed")
    assert results["d3"].settled is Settled.RECORDED
    rulings = {body.call_id: (body.ruling, body.rule) for body in bodies(world, Authorized)}
    assert rulings["d2"] == (Ruling.DENY, "sandboxed")
    assert (dict(counted.made), dict(world.ran)) == (made, ran)


async def test_a_tool_that_is_allowed_by_name_runs(service: tuple[Ledger, str]) -> None:
    counted, url = service
    world, model = await origin_of(url), Other()
    await run_fork(world, model, allow=("opaque",))
    assert counted.made["d2"] == 1
    assert counted.made["d1"] == 0
    await resume(world, world.setup(model))
    assert (await replayed(world, world.setup(model))).clean


@pytest.mark.parametrize("again", ["forked", "durable"])
@pytest.mark.parametrize("cut", range(APPENDS))
async def test_a_fork_that_is_killed_anywhere_goes_on(cut: int, again: str, service: tuple[Ledger, str]) -> None:
    """Given a fork that is killed at an append, it is resumed like any other, and makes each allowed effect once."""
    counted, url = service
    world, model = await origin_of(url), Other("new", ("d1", "readonly"), ("d2", "idempotent"))
    made = dict(counted.made)
    world.die_at_append = cut
    assert await world.until_dead(run_fork(world, model, allow=("idempotent",)))
    replies = len(bodies(world, ModelReplied))
    asked = len(model.requests)
    world.die_at_append = None
    world.clock.advance(PAST_GRACE_S)

    if again == "forked" or not bodies(world, TaskStarted):
        await run_fork(world, model, allow=("idempotent",))
    else:
        await resume(world, world.setup(model))

    assert dict(counted.made) == {**made, "d2": 1}
    assert [len(bodies(world, kind)) for kind in (TaskStarted, TaskEnded, ModelReplied)] == [1, 1, 2]
    assert len(model.requests) - asked == 2 - replies
    state = fold_all(State(FORK), events(world))
    assert (state.irregular, state.open_intents) == (0, {})
    assert (await replayed(world, world.setup(model))).clean


async def test_a_reply_that_is_given_stands_in_for_the_model(service: tuple[Ledger, str]) -> None:
    _, url = service
    world, model = await origin_of(url), Named("old")
    call = {"id": "x", "type": "function", "function": {"name": "readonly", "arguments": '{"what":"it"}'}}
    message = {"role": "assistant", "content": "let me see", "tool_calls": [call]}
    changes = Changes(reply=json.dumps(message))
    world.die_at_append = 3
    assert await world.until_dead(run_fork(world, model, changes=changes))
    assert bodies(world, ModelReplied) == []
    world.die_at_append = None

    await resume(world, world.setup(model))

    first, last = bodies(world, ModelReplied)
    assert (json.loads(first.reply.text), first.stop_reason) == (message, "given")
    assert [request.replies_before for _, request in model.requests] == [2]
    assert json.loads(last.reply.text)["content"] == "done"
    assert (await replayed(world, world.setup(model))).clean


async def test_words_are_a_reply_too_and_end_the_run(service: tuple[Ledger, str]) -> None:
    _, url = service
    world, model = await origin_of(url), Named("old")
    await run_fork(world, model, changes=Changes(reply="No."))
    assert (model.requests, len(bodies(world, TaskEnded))) == ([], 1)


class NothingReadonly:
    version = "nothing readonly"
    budgets = Budgets()

    def decide(self, call: ToolCall, tool: Tool, situation: Situation) -> Decision:
        return deny("no reading") if tool.name == "readonly" else ALLOW


async def test_another_policy_rules_from_the_fork_on(service: tuple[Ledger, str]) -> None:
    """Given a policy that forbids what the origin was allowed, the recorded rulings stand and new ones are its own."""
    _, url = service
    world, model = await origin_of(url), Named("old")
    policy = NothingReadonly()
    await run_fork(world, model, changes=Changes(policy=policy))
    rulings = {body.call_id: body.rule for body in bodies(world, Authorized)}
    assert rulings == {"c3": "no reading", "c4": "sandboxed: given as recorded"}
    assert (await replayed(world, world.setup(model, policy=policy))).clean
    assert "c3" in str((await replayed(world, world.setup(model))).divergence)


async def test_a_policy_file_is_recorded_with_the_fork_and_holds_when_it_is_opened_again(
    service: tuple[Ledger, str],
) -> None:
    """Given a fork by a file, killed after each ruling; whoever opens it next knows nothing of the file."""
    _, url = service
    text = 'default = "allow"\n[[rules]]\nname = "no reading"\nwhen = "effect == \'readonly\'"\nthen = "deny"\n'
    rules = PolicyFile(text.encode(), "policy.toml")
    for at in range(3, APPENDS, 3):
        world, model = await origin_of(url), Named("old")
        world.die_at_append = at
        await world.until_dead(run_fork(world, model, changes=Changes(policy=rules)))
        world.die_at_append = None

        await resume(world, world.setup(Named("old")))

        rulings = {body.call_id: (body.rule, body.policy_version) for body in bodies(world, Authorized)}
        assert rulings["c3"] == ("no reading", rules.version)
        assert (await replayed(world, world.setup(model))).clean
    with pytest.raises(InputError, match="began otherwise: policy"):
        await run_fork(world, model, changes=Changes(policy=PolicyFile(b'default = "allow"', "other")))


@pytest.mark.parametrize("turn", [1, 2, 3])
async def test_a_fork_at_any_turn_without_a_change_does_what_the_origin_did(
    turn: int, service: tuple[Ledger, str]
) -> None:
    counted, url = service
    world, model = await origin_of(url), Named("old")
    made = dict(counted.made)
    await run_fork(world, model, turn=turn)
    assert dict(counted.made) == made
    assert [request.replies_before for _, request in model.requests] == list(range(turn - 1, 3))
    hashes = [body.context_hash for body in bodies(world, ContextBuilt, TRAJECTORY)]
    assert [body.context_hash for body in bodies(world, ContextBuilt)] == hashes[turn - 1 :]


@pytest.mark.parametrize("turn", [2, 3])
async def test_a_fork_of_a_fork_begins_where_its_turn_is(turn: int, service: tuple[Ledger, str]) -> None:
    """At turn 3 it inherits from both, at turn 2, where the fork began, from the origin only."""
    counted, url = service
    world = await origin_of(url)
    await run_fork(world, Other(), turn=2, changes=Changes(prompt="be brief"))
    made, model = dict(counted.made), Other("newest")
    world.die_at_append = 4
    kept: dict[str, Any] = {
        "trajectory_id": "trip-1c",
        "origin": FORK,
        "turn": turn,
        "changes": Changes(prompt="be long"),
    }
    assert await world.until_dead(run_fork(world, model, **kept))
    world.die_at_append = None
    await run_fork(world, model, **kept)
    assert dict(counted.made) == made
    (started,) = bodies(world, TaskStarted, "trip-1c")
    assert started.origin.trajectory_id == FORK
    assert set(prompts(model)) == {"be long"}
    own = bodies(world, ContextBuilt, "trip-1c")
    named = {edit.trajectory_id for edit in own[0].edits}
    assert named == {None, TRAJECTORY, *([FORK] if turn == 3 else [])}
    state = fold_all(State("trip-1c"), events(world, "trip-1c"))
    assert (state.irregular, state.status.value) == (0, "completed")
    assert (await replayed(world, world.setup(model, prompt="be long"), "trip-1c")).clean


async def test_a_changed_program_is_told_that_the_origin_has_something_else(service: tuple[Ledger, str]) -> None:
    _, url = service
    world = await origin_of(url)

    async def other(session: Session) -> None:
        await session.build_context([{"role": "user", "content": "other words"}])

    with pytest.raises(Diverged, match=f"\\(in {TRAJECTORY}\\)"):
        await run_fork(world, Other(), program=other)


async def test_what_cannot_be_forked_is_refused(service: tuple[Ledger, str]) -> None:
    _, url = service
    world = await origin_of(url)
    with pytest.raises(InputError, match="turns of this trajectory are 1 to 3"):
        await run_fork(world, Other(), turn=4)
    with pytest.raises(InputError, match="no trajectory 'trip-9'"):
        await run_fork(world, Other(), origin="trip-9")
    with pytest.raises(InputError, match="began otherwise: that it is a fork"):
        await run_fork(world, Other(), trajectory_id=TRAJECTORY)
    assert bodies(world, TaskStarted) == []
    await run_fork(world, Other())
    with pytest.raises(InputError, match="began otherwise: origin, turn"):
        await run_fork(world, Other(), turn=3)
