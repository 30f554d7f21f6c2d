"""Imported runs under replay: as far as they were recorded, and a change in them is found at its turn (DESIGN §7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.support.importing import chat_run, events_of_plan
from tests.support.sessions import Program, ScriptedModel
from tracklog.infra.blobs import BlobStore, open_blobs
from tracklog.producers.data import shipped_runs
from tracklog.producers.divergence import Cause
from tracklog.producers.importers.effects import AIRLINE
from tracklog.producers.importers.run import Run
from tracklog.producers.policy import ALLOW, Decision, Situation, deny
from tracklog.producers.recorded_agent import recorded_agent
from tracklog.producers.replay import Report, replay
from tracklog.producers.session import Session
from tracklog.producers.tools import Tool, ToolSet, tool
from tracklog.producers.turn import Agent, call_all, run_turns
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.values import Budgets, ToolCall

NOT_ASKED_FOR = (ev.OwnershipClaimed, ev.Observed, ev.TaskEnded)
TOOLS = [{"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": {"type": "object"}}}]


@tool
def find(q: str) -> str:
    """Finds."""
    raise AssertionError("a replay called a tool")


def airline() -> list[Run]:
    return [run for run in shipped_runs() if isinstance(run, Run) and run.dataset == AIRLINE]


async def replayed(
    run: Run, agent: Agent | None = None, program: Program | None = None, blobs: BlobStore | None = None
) -> tuple[Report, list[Event]]:
    """By the built-in agent, as the record describes it unless another one is given."""
    blobs = blobs if blobs is not None else open_blobs("memory://")
    events = events_of_plan(run, blobs)
    chosen = agent if agent is not None else recorded_agent(events, blobs)
    setup = chosen.setup(run.task, blobs)
    return await replay(events, program or (lambda one: run_turns(one, chosen, run.task)), setup=setup), events


async def test_the_120_airline_runs_replay_clean_to_where_they_were_recorded() -> None:
    runs = airline()
    assert len(runs) == 120
    for run in runs:
        report, events = await replayed(run)
        assert report.clean, report
        assert report.ended
        assert report.given == sum(not isinstance(event.body, NOT_ASKED_FOR) for event in events), run.trajectory_id
        assert report.turns == sum(isinstance(event.body, ev.ContextBuilt) for event in events)


def traveller(**changes: Any) -> Agent:
    """An agent as a user writes it, for the small run of `chat_run`."""
    agent = Agent("small", ScriptedModel(), ToolSet.of(find), prompt="be kind", talks_until="thanks")
    return replace(agent, **changes)


async def test_an_agent_of_ones_own_replays_what_another_harness_recorded() -> None:
    for extra in ({}, {"tools": TOOLS}):
        agent = traveller() if not extra else traveller(tools=ToolSet.of(plain_find()))
        report, _ = await replayed(chat_run(**extra), agent)
        assert (report.clean, report.turns) == (True, 2), report.divergence


def plain_find() -> Tool:
    return Tool("find", "Finds.", {"type": "object"}, find.call)


class NoFinding:
    version = "strict"
    budgets = Budgets()

    def decide(self, call: ToolCall, tool: Tool, situation: Situation) -> Decision:
        return deny("no finding") if call.tool == "find" else ALLOW


@pytest.mark.parametrize(
    ("changes", "recording", "turn", "recorded", "asked"),
    [
        ({"prompt": "be brief"}, {}, 0, "TaskStarted", "another prompt"),
        ({"policy": NoFinding()}, {}, 1, "allow for call 'c1'", "deny for call 'c1': no finding"),
        ({"tools": ToolSet.of(find)}, {"tools": TOOLS}, 0, "TaskStarted", "another tools"),
        ({"talks_until": None}, {}, 2, "a message from user: 'thanks'", "the end of the task"),
        ({"turns_max": 1}, {}, 2, "a context of 4 messages", "the end of the task"),
        ({"model": None}, {"model": "gpt"}, 0, "TaskStarted", "another model"),
    ],
)
async def test_a_changed_agent_is_found_at_its_turn(
    changes: dict[str, Any], recording: dict[str, Any], turn: int, recorded: str, asked: str
) -> None:
    report, _ = await replayed(chat_run(**recording), traveller(**changes))
    found = report.divergence
    assert found is not None
    assert (found.turn, found.cause) == (turn, Cause.HARNESS)
    assert recorded in found.recorded, found
    assert asked in found.asked, found


def cutting(turn: int) -> Program:
    """A harness that cuts what its tools say from a turn on."""

    async def program(session: Session) -> None:
        messages: list[Any] = [{"role": "system", "content": session.prompt}, {"role": "user", "content": TASK}]
        while True:
            await session.build_context(messages)
            reply = await session.call_model()
            messages.append(reply.message)
            said: Sequence[Any] = [result.message for result in await call_all(session, reply)]
            if session.turn >= turn:
                said = [{**one, "content": one["content"][:20]} for one in said]
            messages += said if reply.tool_calls else [await session.receive()]

    return program


LONG = next(run for run in airline() if sum(len(getattr(step, "calls", ())) for step in run.steps) > 5)
TASK = LONG.task


async def test_a_harness_that_cuts_results_in_a_recorded_run_is_found_where_it_does_so_first() -> None:
    """In the next context after the first result that is longer than what is left of it."""
    for turn in range(1, 8):
        report, events = await replayed(LONG, program=cutting(turn))
        long = [
            event.envelope.turn
            for event in events
            if isinstance(event.body, ev.ToolResult)
            and event.envelope.turn >= turn
            and event.body.output.size_bytes > 20
        ]
        found = report.divergence
        assert found is not None
        assert (found.turn, found.cause) == (min(long) + 1, Cause.HARNESS)


async def test_a_result_in_the_blob_store_is_given_whole_to_the_program() -> None:
    """What another harness showed its model was not cut by Tracklog."""
    blobs = open_blobs("memory://")
    run = chat_run()
    events = events_of_plan(run, blobs)
    agent = traveller()
    seen: list[str] = []

    async def program(session: Session) -> None:
        await session.build_context([{"role": "system", "content": "be kind"}, {"role": "user", "content": run.task}])
        reply = await session.call_model()
        seen.extend(str(result.message["content"]) for result in await call_all(session, reply))

    cut = [_stored(event, blobs) for event in events]
    await replay(cut, program, setup=agent.setup(run.task, blobs))
    assert seen == ["here it is"]


def _stored(event: Event, blobs: BlobStore) -> Event:
    if not isinstance(event.body, ev.ToolResult):
        return event
    blobs.put(event.body.output.text.encode(), media_type="text/plain")
    output = event.body.output.model_copy(update={"text": "here", "stored": True})
    return event._replace(body=event.body.model_copy(update={"output": output}))
