"""What others say to a running trajectory: messages, cancels, settlements; each taken once, in order, killed or not."""

from __future__ import annotations

import pytest

from tests.support.ledger import Ledger, ledger
from tests.support.sessions import TRAJECTORY, Program, ScriptedModel, World, asks, new_world, says
from tracklog.producers.post import Poster
from tracklog.producers.replay import replay
from tracklog.producers.session import Session
from tracklog.producers.settle import Timing
from tracklog.producers.turn import Agent, run_turns
from tracklog.producers.versions import Drift
from tracklog.schemas.errors import Cancelled, NothingReceived, PersonNeeded, SessionMisused
from tracklog.schemas.events import (
    CancelRequested,
    InboxRefused,
    MessageReceived,
    MessageSent,
    OwnershipReleased,
    TaskEnded,
    TaskStarted,
    TimerFired,
    ToolResult,
)
from tracklog.schemas.inbox import Annotation, Cancel, InboxBody, Message, Settlement, Submit
from tracklog.schemas.lifecycle import EXT_PARKED
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Body, Driver, Ending, InboxId, ResultStatus, Role, Settled, TargetKind

NO_WAIT = Timing(start_within_s=30.0, grace_s=70.0, settle_wait_s=1000.0, receive_wait_s=0.0)


async def post(world: World, body: InboxBody, seq: int, source: str = "ada") -> None:
    log = world.new_log()
    poster = Poster(log, Topics(), clock=world.clock)
    await poster.post(TRAJECTORY, body, inbox_id=InboxId(source=source, seq=seq))
    log.close()


def said(text: str) -> Message:
    return Message(peer="ada", role=Role.USER, message=Body.of(text))


def talker(world: World) -> Program:
    setup = world.setup(None)
    agent = Agent("traveller", None, setup.tools, prompt="be kind", talks_until="bye")

    async def run(session: Session) -> None:
        await run_turns(session, agent, setup.task)

    return run


def chat() -> ScriptedModel:
    return ScriptedModel(says("where to?"), asks(("c1", "readonly")), says("found it"), says("booked"))


async def test_an_agent_that_waits_for_a_message_is_parked_and_goes_on_with_it() -> None:
    world, model = new_world(""), chat()
    with pytest.raises(NothingReceived, match="tracklog send trip-1"):
        await world.run(model, talker(world), timing=NO_WAIT)
    (released,) = [event for event in world.events() if isinstance(event.body, OwnershipReleased)]
    assert released.envelope.ext[EXT_PARKED] == "message"

    for seq, text in enumerate(("to Zürich", "the first one", "bye")):
        await post(world, said(text), seq)
        await post(world, said(text), seq)  # a sender that was not sure
    await world.run(model, talker(world), timing=NO_WAIT)

    heard = [body.message.text for body in world.bodies(MessageReceived)]
    assert heard == ["book a trip", "to Zürich", "the first one", "bye"]
    assert world.bodies(TaskEnded)[0].ending is Ending.COMPLETED
    assert set(model.asked.values()) == {1}
    assert (await replay(world.events(), talker(world), setup=world.setup(model))).clean


async def test_a_talk_killed_at_any_append_takes_every_message_once() -> None:
    whole = new_world("")
    for seq, text in enumerate(("to Zürich", "the first one", "bye")):
        await post(whole, said(text), seq)
    await whole.run(chat(), talker(whole), timing=NO_WAIT)
    for moment in range(2, whole.appends, 2):
        world, model = new_world(""), chat()
        for seq, text in enumerate(("to Zürich", "the first one", "bye")):
            await post(world, said(text), seq)
        world.die_at_append = moment
        assert await world.crash(model, talker(world), timing=NO_WAIT)
        world.die_at_append = None
        await world.run(model, talker(world), timing=NO_WAIT)
        heard = [body.message.text for body in world.bodies(MessageReceived) if body.message.text != "book a trip"]
        assert heard == ["to Zürich", "the first one", "bye"], moment
        assert (await replay(world.events(), talker(world), setup=world.setup(model))).clean


async def test_a_cancel_ends_the_trajectory_at_its_next_step() -> None:
    world, model = new_world(""), chat()

    async def program(session: Session) -> None:
        await session.build_context([{"role": "user", "content": "book a trip"}])
        await session.call_model()
        await post(world, Cancel(by="ada", reason="not needed any more"), 0)
        await session.build_context([{"role": "user", "content": "again"}])
        raise AssertionError("it went on")

    with pytest.raises(Cancelled, match="not needed any more"):
        await world.run(model, program)

    assert len(world.bodies(CancelRequested)) == 1
    (ended,) = world.bodies(TaskEnded)
    assert (ended.ending, model.asked.total()) == (Ending.CANCELLED, 1)
    assert (await replay(world.events(), program, setup=world.setup(model))).clean


async def test_a_cancelled_trajectory_that_was_killed_before_its_end_ends_as_cancelled() -> None:
    world, model = new_world(""), chat()

    async def program(session: Session) -> None:
        await session.build_context([{"role": "user", "content": "book a trip"}])
        await session.call_model()
        await post(world, Cancel(by="ada"), 0)
        await session.build_context([{"role": "user", "content": "again"}])

    world.die_at_append = 6  # the claim, the start, the task, context, reply, the cancel; not the end
    assert await world.crash(model, program)
    world.die_at_append = None
    assert (len(world.bodies(CancelRequested)), len(world.bodies(TaskEnded))) == (1, 0)
    with pytest.raises(Cancelled):
        await world.run(model, program)
    assert world.bodies(TaskEnded)[0].ending is Ending.CANCELLED


async def test_a_cancelled_trajectory_ends_when_it_is_opened_whatever_its_program_would_do() -> None:
    world = new_world("")

    async def once(session: Session) -> None:
        await session.build_context([{"role": "user", "content": "book a trip"}])
        await session.call_model()
        raise ConnectionError("the process goes away")

    async def other(session: Session) -> None:
        raise AssertionError("the program of a cancelled trajectory was run")

    with pytest.raises(ConnectionError):
        await world.run(chat(), once)
    await post(world, Cancel(by="ada", reason="not needed"), 0)
    with pytest.raises(Cancelled, match="not needed"):
        await world.run(chat(), other, prompt="another one", drift=Drift.REFUSE)

    (ended,) = world.bodies(TaskEnded)
    assert ended.ending is Ending.CANCELLED


async def test_a_person_settles_what_a_person_was_asked_about() -> None:
    with ledger() as (kept, url):
        world, model = new_world(url), ScriptedModel(asks(("c1", "opaque")), says("done"))
        await escalated(world, model, kept)
        (intent,) = [event for event in world.events() if event.name == "ToolIntent"]
        wrong = Settlement(
            call_id="c1", intent_hash=bytes(32), by="ada", status=ResultStatus.OK, output=Body.of("of another call")
        )
        right = wrong.model_copy(update={"intent_hash": intent.hash, "output": Body.of("booked, I looked")})
        for seq, one in enumerate((wrong, right, right)):
            await post(world, one, seq)

        await world.run(model)

    (result,) = world.bodies(ToolResult)
    assert (result.output.text, result.settled) == ("booked, I looked", Settled.PERSON)
    assert [body.refused.seq for body in world.bodies(InboxRefused)] == [0, 2]
    assert len(world.bodies(TaskEnded)) == 1


async def escalated(world: World, model: ScriptedModel, kept: Ledger) -> None:
    world.die_at_point = "after the effect"
    await world.crash(model)
    world.die_at_point = None
    world.clock.advance(150.0)
    with pytest.raises(PersonNeeded):
        await world.run(model)
    assert kept.made["c1"] <= 1


async def test_what_nothing_waits_for_is_refused_with_a_reason_and_judgements_are_kept() -> None:
    world, model = new_world(""), ScriptedModel(says("done"))
    task = world.setup(model)
    again = Submit(task=started(task.task))
    await post(world, again, 0, source="client")
    judged = Annotation(target=TargetKind.TRAJECTORY, name="good", value=Body.of("1"), source="ada")
    await post(world, judged, 0)

    await world.run(model)

    assert [(body.kind, body.reason) for body in world.bodies(InboxRefused)] == [
        ("Submit", "the trajectory has a task already")
    ]
    assert any(event.name == "Annotated" for event in world.events())


def started(task: str) -> TaskStarted:
    return TaskStarted(driver=Driver.WORKER, task=Body.of(task), agent="traveller")


async def test_messages_to_others_and_timers_by_turns_are_recorded_once() -> None:
    world, model = new_world(""), ScriptedModel(says("one"), says("two"), says("three"))
    fired: list[tuple[str, ...]] = []

    async def program(session: Session) -> None:
        fired.clear()
        await session.sleep_turns(2, "check")
        with pytest.raises(SessionMisused):
            await session.sleep_turns(1, "check")
        messages: list[dict[str, str]] = [{"role": "user", "content": "go"}]
        for _ in range(3):
            await session.build_context(messages)
            fired.append(session.fired)
            messages.append(dict((await session.call_model()).message))
        await session.send("planner", "I am done")
        await session.end("done")

    for moment in (8, 9, 12):
        world = new_world("")
        world.die_at_append = moment
        assert await world.crash(model, program)
        world.die_at_append = None
        await world.run(model, program)
        assert fired == [(), ("check",), ()]
        assert len(world.bodies(TimerFired)) == len(world.bodies(MessageSent)) == 1
        assert (await replay(world.events(), program, setup=world.setup(model))).clean
