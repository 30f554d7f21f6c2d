"""Recording for clients in other languages: once, whichever replica is asked and whenever it dies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, get_args

import pytest

from tests.support.recording import RUN, Given, Replica, call_of, ended, replica, said, start, turn
from tests.support.sessions import Crash, World, kinds, new_world
from tests.support.writing import make_topics, read_accepted
from tracklog.consumers.ingest import given
from tracklog.consumers.ingest.ingest import Recorded
from tracklog.consumers.trajectory_replay import replay_events
from tracklog.consumers.verify import Verification
from tracklog.infra.log.memory import Fault
from tracklog.infra.settings import IngestSettings
from tracklog.producers.messages import Messages
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import (
    AppendRefused,
    BarrierTooWeak,
    InputError,
    InvalidEvent,
    LeaseHeld,
    TracklogError,
    TrajectoryEnded,
    Undecided,
)
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Driver, Place

RunTurns = list[tuple[int, list[Given]]]
BATCHES: RunTurns = [(1, [said(), *turn("c1")]), (7, turn("c2")), (12, ended())]
"""A whole run: the number of the first event of each batch, and the batch."""
SEARCH: Given = {
    "type": "function",
    "function": {"name": "search", "description": "finds", "parameters": {"type": "object", "properties": {}}},
}


@pytest.fixture
def world() -> World:
    return new_world("nowhere")


def recorded(world: World) -> list[Event]:
    return read_accepted(world.new_log(), RUN)


def own(events: list[Event]) -> list[Event]:
    """Without claims and releases."""
    return [one for one in events if not isinstance(one.body, ev.OwnershipClaimed | ev.OwnershipReleased)]


def check_whole(world: World, others: int = 0) -> None:
    """The chain verifies, nothing is irregular, and each event of the client is in once and in order."""
    reports = [*Verification(world.new_log(), Topics().events).reports()]
    assert len(reports) == 1 + others
    assert all(report.sound for report in reports), reports
    events = recorded(world)
    state = fold_all(State(RUN), events)
    assert (state.irregular, state.faults, state.ended) == (0, 0, True)
    numbers = [one.envelope.inbox_id.seq for one in own(events) if one.envelope.inbox_id is not None]
    assert numbers == list(range(15))


async def record_all(one: Replica) -> list[Recorded]:
    return [await one.start(start()), *[await one.append(first, batch) for first, batch in BATCHES]]


async def test_a_recorded_run_is_a_trajectory_like_an_imported_one(world: World) -> None:
    async with replica(world) as one:
        await one.start(start(prompt="be kind", tools=[SEARCH]))
        for first, batch in BATCHES:
            await one.append(first, batch)
    check_whole(world)
    events = recorded(world)
    # then it is nobody's to run
    claim, started = events[0].body, events[1].body
    assert isinstance(claim, ev.OwnershipClaimed)
    assert isinstance(started, ev.TaskStarted)
    assert (claim.owner, claim.driver, started.driver) == ("ada/ts", Driver.INGEST, Driver.INGEST)
    assert {one.body.place for one in events if isinstance(one.body, ev.ToolIntent)} == {Place.RECORDED}
    # and turns, causes and contexts are there though the client named none
    assert [one.envelope.turn for one in own(events)] == [0, 0, *[1] * 5, *[2] * 5, *[3] * 3]
    result = next(one for one in events if isinstance(one.body, ev.ToolResult))
    assert [ref.seq for ref in result.envelope.causes] == [result.envelope.seq - 1]
    messages = Messages(world.blobs)
    for event in events:
        messages.take(event)
    context = fold_all(State(RUN), events).context
    assert [messages.at(RUN, ref.seq)["role"] for ref in context] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
    ]
    assert messages.at(RUN, context[3].seq) == {"role": "tool", "tool_call_id": "c1", "content": "found c1"}
    # and the built-in agent replays it from its own record
    report = await replay_events(RUN, events, [], {}, world.blobs)
    assert report.clean, report


async def test_the_same_request_has_the_same_answer_at_any_replica_and_is_taken_once(world: World) -> None:
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(replica(world)) for _ in range(2)]
        first = await record_all(one)
        before = recorded(world)
        assert await record_all(two) == first
        assert await record_all(one) == first
    assert recorded(world) == before
    check_whole(world)


async def test_replicas_take_turns_and_each_claims_anew(world: World) -> None:
    async with AsyncExitStack() as stack:
        replicas = [await stack.enter_async_context(replica(world)) for _ in range(2)]
        answers = [await replicas[0].start(start())]
        for number, (first, batch) in enumerate(BATCHES, start=1):
            answers.append(await replicas[number % 2].append(first, batch))
    assert [one.epoch for one in answers] == [1, 2, 3, 4]
    check_whole(world)


async def test_the_same_batch_at_two_replicas_at_once_is_taken_once(world: World) -> None:
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(replica(world)) for _ in range(2)]
        answers = await asyncio.gather(one.start(start()), two.start(start()))
        assert answers[0] == answers[1]
        for first, batch in BATCHES:
            answers = await asyncio.gather(one.append(first, batch), two.append(first, batch))
            assert answers[0] == answers[1]
    check_whole(world)


async def send(first: int, batch: list[Given], one: Replica) -> Recorded:
    return await one.append(first, batch)


async def until_answered(do: Callable[[Replica], Any], world: World, die_at: int) -> bool:
    """One request by a process that dies at an append, then by others until it is answered. False: it did not die."""
    count = 0

    def die(topic: str, key: bytes, value: bytes) -> None:
        nonlocal count
        count += 1
        if count > die_at:
            raise Crash

    async with replica(world, faults=die) as dying:
        with suppress(Crash):
            await do(dying)
            return False
    async with replica(world) as other:
        await do(other)
    return True


@pytest.mark.parametrize("die_at", range(12))
async def test_killed_at_any_append_the_same_batch_at_another_replica_makes_it_whole(world: World, die_at: int) -> None:
    died = [await until_answered(lambda one: one.start(start()), world, die_at)]
    for first, batch in BATCHES:
        died.append(await until_answered(partial(send, first, batch), world, die_at))
    assert any(died) == (die_at < 7)
    check_whole(world)


@pytest.mark.parametrize("fault", [Fault.STORE_UNKNOWN, Fault.DROP_UNKNOWN])
async def test_an_append_of_which_nobody_knows_is_neither_lost_nor_doubled(world: World, fault: Fault) -> None:
    drawn = random.Random(5)

    def now_and_then(topic: str, key: bytes, value: bytes) -> Fault | None:
        return fault if drawn.random() < 0.3 else None

    async with replica(world, faults=now_and_then) as one:
        await record_all(one)
    check_whole(world)


async def test_a_log_that_does_not_decide_in_time_is_a_timeout_and_the_same_again_settles_it(world: World) -> None:
    held = False

    def hold(topic: str, key: bytes, value: bytes) -> Fault | None:
        return Fault.DELAY if held else None

    async with replica(world, IngestSettings(answer_s=0.3), hold) as one:
        await one.start(start())
        held = True
        with pytest.raises(Undecided, match="send the same again"):
            await one.append(*BATCHES[0])
        # when the log has stored it after all
        held = False
        assert one.log.release() > 0
        for first, batch in BATCHES:
            await one.append(first, batch)
    check_whole(world)


async def test_a_log_that_takes_nothing_says_send_the_same_again(world: World) -> None:
    away = True
    async with replica(world, faults=lambda *_: Fault.REFUSE if away else None) as one:
        with pytest.raises(AppendRefused) as caught:
            await one.start(start())
        assert "send the same again" in caught.value.hint
        away = False
        await record_all(one)
    check_whole(world)


async def refused(do: Any, kind: type[TracklogError], **details: object) -> TracklogError:
    with pytest.raises(kind) as caught:
        await do
    assert {name: caught.value.details.get(name) for name in details} == details, caught.value
    return caught.value


async def test_nothing_of_a_batch_is_in_when_one_of_its_events_cannot_follow(world: World) -> None:
    async with replica(world) as one:
        await one.start(start())
        before = recorded(world)
        result: Given = {"type": "ToolResult", "call_id": "none", "status": "ok"}
        await refused(one.append(1, [said(), result]), InvalidEvent, index=1, type="ToolResult")
        end: Given = {"type": "TaskEnded", "ending": "completed"}
        await refused(one.append(1, [*turn("c1")[:4], end]), InvalidEvent, index=4)
        await refused(one.append(1, [end, said()]), TrajectoryEnded, index=1)
        twice: Given = {"type": "ModelReplied", "reply": {"role": "assistant", "tool_calls": [call_of("c1")] * 2}}
        twice["tool_calls"] = [{"call_id": "c1", "tool": "search"}] * 2
        await refused(one.append(1, [said(), twice]), InputError, index=1, type="ModelReplied")
        again = [*turn("c1"), *turn("c1")]
        await refused(one.append(1, again), InputError, index=6, field="tool_calls")
        strange: Given = {"type": "ContextBuilt", "numbers": [0, 7]}
        await refused(one.append(1, [said(), strange]), InputError, index=1, field="numbers")
        await refused(one.append(1, [said("\ud800")]), InputError, index=0)
        large: Given = {"type": "ModelReplied", "reply": {"role": "assistant"}}
        large["tool_calls"] = [{"call_id": "c", "tool": "write", "arguments": "x" * 950_000}]
        await refused(one.append(1, [{"type": "ContextBuilt"}, large]), InputError, index=1)
        await refused(one.append(1, [said()] * 1001), InputError)
        assert recorded(world) == before
        # and what can follow does
        for first, batch in BATCHES:
            await one.append(first, batch)
    check_whole(world)


async def test_numbers_are_gapless_and_each_means_one_event(world: World) -> None:
    async with replica(world) as one:
        await one.start(start())
        await one.append(*BATCHES[0])
        await refused(one.append(8, turn("c2")), InvalidEvent, next=7)
        await refused(one.append(1, [said("something else")]), InvalidEvent, index=0, number=1)
        await refused(one.start(start(task="another")), InvalidEvent, index=0)
        # events that are in may come again in front of new ones
        again = [*BATCHES[0][1], *BATCHES[1][1]]
        assert (await one.append(1, again)).next == 12
        await one.append(*BATCHES[2])
        await refused(one.append(15, [said()]), TrajectoryEnded)
    check_whole(world)


async def test_another_client_waits_for_the_lease_or_its_release(world: World) -> None:
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(replica(world)) for _ in range(2)]
        await one.start(start("a", lease_s=20))
        now_ms = world.clock.now_us() // 1000
        held = await refused(two.append(0, [said()], "b"), LeaseHeld, holder="ada/a", until_ms=now_ms + 20_000)
        assert "ada/a" in str(held)
        await refused(two.release("b"), LeaseHeld)
        await refused(two.start(start("b")), LeaseHeld)
        # a lease counts from the last event
        world.clock.advance(15)
        await one.append(1, [said()], "a", lease_s=20)
        world.clock.advance(15)
        await refused(two.append(0, [said()], "b"), LeaseHeld)
        world.clock.advance(6)
        await two.append(0, [said()], "b")
        await refused(one.append(2, [said()], "a", lease_s=20), LeaseHeld, holder="ada/b")
        # and its release ends it, at whichever replica
        assert await one.release("b")
        assert await one.release("b")
        await one.append(2, [said()], "a", lease_s=20)
        with pytest.raises(InputError, match="3600"):
            await one.append(3, [said()], "a", lease_s=4000)
    drivers = [one.body.owner for one in recorded(world) if isinstance(one.body, ev.OwnershipClaimed)]
    assert drivers == ["ada/a", "ada/b", "ada/b", "ada/a"]


async def test_of_two_clients_that_begin_at_once_one_is_refused(world: World) -> None:
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(replica(world)) for _ in range(2)]
        both = await asyncio.gather(one.start(start("a")), two.start(start("b")), return_exceptions=True)
    assert sorted(type(one).__name__ for one in both) == ["LeaseHeld", "Recorded"]
    assert kinds(recorded(world)) == ["OwnershipClaimed", "TaskStarted"]


async def test_another_tenants_or_another_drivers_trajectory_is_not_recorded_into(world: World) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(replica(world))
        other = Replica(one.log, one.ingest, "eve", ("elsewhere",))
        await one.start(start())
        before = recorded(world)
        with pytest.raises(AssertionError):  # None: there is none for them
            await other.append(0, [said()])
        assert not await other.release()
        with pytest.raises(InvalidEvent, match="cannot begin"):
            await other.start(start(tenant="elsewhere"))
        assert recorded(world) == before
        # and what a session runs is its program's
        async with world.process() as (_, producer):
            await producer.claim("lib-1", owner="p", driver=Driver.LIBRARY)
        with pytest.raises(InvalidEvent, match="'library'"):
            await one.start(start(id="lib-1"))


async def test_more_durability_than_the_topic_gives_is_an_error(world: World) -> None:
    replicated = Topics("replicated")
    make_topics(world.new_log(), replicated, replicas=3)
    async with replica(world, topics=replicated) as one:
        await refused(one.start(start(barrier="fsync")), BarrierTooWeak)
        await one.start(start(barrier="replicated"))
        await refused(one.append(1, [said()], barrier="fsync"), BarrierTooWeak)
    assert kinds(read_accepted(world.new_log(), RUN, prefix="replicated")) == ["OwnershipClaimed", "TaskStarted"]


async def test_a_process_keeps_few_trajectories_at_hand_and_reads_the_others_again(world: World) -> None:
    async with replica(world, IngestSettings(trajectories_max=1)) as one:
        for first, batch in BATCHES:
            for number in range(3):
                if first == 1:
                    await one.start(start(id=f"other-{number}"))
            if first == 1:
                await one.start(start())
            await one.append(first, batch)
    check_whole(world, others=3)


async def test_what_nobody_asks_for_is_not_kept_at_hand(world: World) -> None:
    async with replica(world) as one:
        await one.start(start())
        await one.append(*BATCHES[0])
        world.clock.advance(601)
        await one.start(start(id="other"))
        assert list(one.ingest._open) == ["other"]
        await one.append(*BATCHES[1])
        await one.append(*BATCHES[2])
    check_whole(world, others=1)


GIVEN_TYPES = get_args(get_args(given.GivenEvent)[0])


@pytest.mark.parametrize("kind", GIVEN_TYPES, ids=lambda kind: str(kind.__name__))
def test_the_fields_that_a_client_gives_are_those_of_the_schemas(kind: type[given.Given]) -> None:
    found = {name for name in kind.model_fields if name != "type"}
    known = set(ev.EVENT_TYPES[kind.__name__].model_fields)
    assert found - known == ({"numbers", "seqs"} if kind is given.ContextBuilt else set())
