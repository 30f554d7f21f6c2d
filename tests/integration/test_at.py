"""A trajectory at a turn: the context as the model was given it, rulings, budgets, open calls, files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_session_checkpoint import settings
from tests.integration.test_session_compaction import TOOLS, Summaries, program
from tests.integration.test_session_drift import Named, killed, newer
from tests.integration.test_session_fork import FORK, Other, origin_of, run_fork
from tests.integration.test_session_inbox import NO_WAIT, post, talker
from tests.integration.test_session_inbox import said as says_ada
from tests.integration.test_session_policy import HELD, decide, held, model, policy
from tests.integration.test_session_wrap import SCRIPT, loop, run
from tests.integration.test_session_wrap import TOOLS as WRAPPED_TOOLS
from tests.support.chains import run_of
from tests.support.importing import events_of_plan
from tests.support.ledger import Ledger, ledger
from tests.support.openai_server import openai_server
from tests.support.sessions import TRAJECTORY, ScriptedModel, World, asks, new_world, says
from tracklog.consumers.comparing import compare
from tracklog.consumers.moment import Moment, moment
from tracklog.consumers.turns import Turns, read_turns
from tracklog.infra.blobs import open_blobs
from tracklog.producers.data import shipped_runs
from tracklog.producers.fork import Changes
from tracklog.producers.importers.run import Run
from tracklog.producers.models import ModelAnswer, ModelRequest
from tracklog.producers.tools import ToolSet, tool
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import InputError
from tracklog.schemas.lifecycle import CallStatus
from tracklog.schemas.values import Budgets, Choice


class Watched(ScriptedModel):
    """Keeps what it was asked."""

    def __init__(self, *answers: ModelAnswer) -> None:
        super().__init__(*answers)
        self.requests: list[ModelRequest] = []

    async def reply(self, request: ModelRequest, *, on_token: Callable[[str], None] | None = None) -> ModelAnswer:
        self.requests.append(request)
        return await super().reply(request, on_token=on_token)


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


def turns_of(world: World, trajectory_id: str = TRAJECTORY) -> Turns:
    return read_turns(world.new_log(), "tracklog.events", trajectory_id, world.blobs)


def at(world: World, turn: int, trajectory_id: str = TRAJECTORY) -> Moment:
    return moment(turns_of(world, trajectory_id), turn)


def shown(found: Moment) -> tuple[list[Any], Any]:
    """(messages, tools), proved to be as recorded."""
    assert found.context is not None
    assert found.context.problem == ""
    assert found.context.recomputed == found.context.recorded
    return [one.message for one in found.context.messages], found.context.tools


def same(world: World, requests: list[ModelRequest], trajectory_id: str = TRAJECTORY, first: int = 1) -> bool:
    """Whether the contexts from a turn on are what the model was asked, request by request."""
    found = [shown(at(world, turn, trajectory_id)) for turn in range(first, first + len(requests))]
    return found == [(list(one.messages), list(one.tools) or None) for one in requests]


async def test_contexts_with_summaries_and_cut_outputs_are_what_the_model_saw() -> None:
    world, seen = new_world(""), Watched(*(asks((f"c{n}", "look")) for n in range(9)), says("done"))
    await world.run(seen, program(world, Summaries()), tools=TOOLS)
    assert len(seen.requests) == 10
    assert same(world, seen.requests)

    @tool(effect="readonly")
    def flood() -> str:
        return "line of a log\n" * 10_000

    world, seen = new_world(""), Watched(asks(("c1", "flood"), arguments="{}"), says("done"))
    await world.run(seen, tools=ToolSet.of(flood), output_bytes_max=1000)
    assert same(world, seen.requests)


async def test_contexts_with_messages_of_the_inbox_are_what_the_model_saw() -> None:
    world, seen = new_world(""), Watched(says("where to?"), asks(("c1", "readonly")), says("found it"), says("booked"))
    for seq, text in enumerate(("to Zürich", "the first one", "bye")):
        await post(world, says_ada(text), seq)
    await world.run(seen, talker(world), timing=NO_WAIT)

    assert same(world, seen.requests)
    found = at(world, 4)
    assert dict(found.state.inbox) == {"ada": 2}
    assert dict(at(world, 1).state.inbox) == {"ada": 2}, "all of them had come before it was over"


async def test_contexts_after_a_crossing_and_of_a_fork_are_what_the_model_saw(service: tuple[Ledger, str]) -> None:
    """Given a run that goes on by other prompts and tools, and a fork of a run with another prompt."""
    world, seen = await killed(service[1]), Named("new")
    await world.run(seen, **newer(world))
    requests = [request for _, request in seen.requests]
    assert same(world, requests, first=4 - len(requests))
    versions = [at(world, turn).versions for turn in (1, 3)]
    assert [one.model for one in versions if one is not None] == ["old", "new"]

    world = await origin_of(service[1])
    other = Other()
    await run_fork(world, other, changes=Changes(prompt="be brief"))
    assert same(world, [request for _, request in other.requests], FORK, first=2)
    inherited = at(world, 1, FORK)
    assert inherited.inherited
    assert inherited.state.trajectory_id == TRAJECTORY
    assert shown(inherited) == shown(at(world, 1))


async def test_the_tools_of_a_wrapped_client_are_those_of_its_request(service: tuple[Ledger, str]) -> None:
    world = new_world(service[1])
    with openai_server(*SCRIPT) as endpoint:
        await run(world, loop(world, endpoint.url))
    for turn, body in enumerate(endpoint.bodies, start=1):
        messages, tools = shown(at(world, turn))
        said = [{key: value for key, value in one.items() if value is not None} for one in messages]
        assert (said, tools) == (body["messages"], WRAPPED_TOOLS)


def test_every_context_of_the_shipped_runs_is_rebuilt() -> None:
    """Given each fifth of the imported runs, when a turn is shown, then its messages have the recorded hash."""
    blobs, turns = open_blobs("memory://"), 0
    for one in islice(shipped_runs(), 0, None, 5):
        assert isinstance(one, Run)
        found = Turns(one.trajectory_id, (), events_of_plan(one, blobs), blobs)
        for context in found.contexts.values():
            assert found.recomputed(context) == context.body.context_hash
        turns += len(found.contexts)
    assert turns > 300


async def test_a_held_call_is_shown_with_its_ruling_its_decision_and_what_was_left(
    service: tuple[Ledger, str],
) -> None:
    world = await held(service[1])
    waiting = at(world, 1)
    assert next(call.status for call in waiting.open_calls.values()) is CallStatus.ASKED
    await decide(world, person="ada", choice=Choice.APPROVE)
    limited = policy(HELD)
    await world.run(model(), policy=limited)

    found = at(world, 1)

    (booked, _) = found.calls
    assert [event.name for event in booked.said] == ["Authorized", "ApprovalRequested", "ApprovalResolved"]
    assert booked.intent is not None
    assert booked.result is not None
    assert not found.open_calls
    assert found.reply is not None


async def test_what_is_left_of_budgets_is_as_the_rulings_say(service: tuple[Ledger, str]) -> None:
    world = new_world(service[1])
    limits = policy('default = "allow"\n[budgets]\nturns = 9\ntool_calls = 5\n')
    await world.run(
        ScriptedModel(asks(("c1", "readonly")), asks(("c2", "readonly"), ("c3", "local")), says("done")), policy=limits
    )

    assert [at(world, turn).left for turn in (0, 1, 2, 3)] == [
        Budgets(turns=9 - turn, tool_calls=5 - calls) for turn, calls in ((0, 0), (1, 1), (2, 3), (3, 3))
    ]
    last_said = at(world, 2).calls[-1].said[-1].body
    assert last_said is not None
    assert getattr(last_said, "budget_remaining") == at(world, 2).left  # noqa: B009


async def test_a_call_that_nobody_has_settled_is_open(service: tuple[Ledger, str]) -> None:
    world = new_world(service[1])
    world.die_at_point = "after the effect"
    assert await world.crash(ScriptedModel(asks(("c1", "opaque")), says("done")))

    found = at(world, 1)

    assert {name: call.status for name, call in found.open_calls.items()} == {"c1": CallStatus.INTENDED}
    assert found.calls[0].intent is not None
    assert found.calls[0].result is None


async def test_files_are_those_of_the_last_checkpoint_until_then(tmp_path: Path) -> None:
    world = World("", open_blobs(str(tmp_path / "blobs")))
    world.from_checkpoint = True
    await world.run(
        ScriptedModel(asks(("c1", "write")), asks(("c2", "write")), says("done")), **settings(world, tmp_path / "work")
    )

    files = [at(world, turn).files for turn in (0, 3)]

    assert [one is not None and not one.problem for one in files] == [True, True]
    sizes = [{path: entry.size for path, entry in one.entries.items()} for one in files if one is not None]
    assert sizes == [{}, {"notes": len("c1\nc2\n")}]


async def test_a_context_whose_blob_is_gone_or_other_says_so() -> None:
    world = new_world("")
    await world.run(ScriptedModel(says("x" * 100_000), says("end")))
    good, empty = turns_of(world), open_blobs("memory://")
    assert moment(good, 1).context is not None

    found = moment(Turns(TRAJECTORY, (), good.events, empty), 1).context

    assert found is not None
    assert "is not in memory://" in found.problem
    assert found.messages[0].message is None
    assert found.messages[1].message == {"role": "user", "content": "book a trip"}


def test_a_program_of_another_make_is_shown_as_far_as_it_can_be() -> None:
    """Given a run whose replies are plain texts and whose contexts name what is no message."""
    turns, newer = (
        Turns("other", (), [decode_event(*made[:3]) for made in run_of("other", model=name).records], empty)
        for name, empty in (("old", open_blobs("memory://")), ("new", open_blobs("memory://")))
    )

    found = moment(turns, 2).context

    assert found is not None
    assert "no message" in found.problem
    assert compare(turns, turns).same
    first = compare(turns, newer).first
    assert first is not None
    assert first[:2] == (0, "versions")


async def test_what_is_not_there_is_said() -> None:
    world = new_world("")
    await world.run(ScriptedModel(says("end")))
    with pytest.raises(InputError, match="no trajectory 'nobody'"):
        turns_of(world, "nobody")
    with pytest.raises(InputError, match="no turn 2") as error:
        at(world, 2)
    assert error.value.hint == "it has turns 1 to 1"
