"""What a dispatcher keeps in Redis: where it goes on, and that nothing rests on it. Over real Valkey; log in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson
import pytest

from tests.support.dispatch_walk import TOPICS, Member, Walk, watch
from tests.support.dispatching import Dying, dispatched, dispatching, new_dispatcher
from tests.support.ledger import effects_of, ledger
from tests.support.sessions import ScriptedModel, World, asks, new_world, says
from tracklog.consumers.dispatch import kept
from tracklog.consumers.dispatch.kept import Keeper, Start, keeper_on
from tracklog.consumers.open_calls import OpenCalls, open_in_log, open_in_redis
from tracklog.infra import partition_loop
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.processors.redis_store import RedisStore
from tracklog.producers.settle import Timing
from tracklog.producers.tools import CallContext, ToolSet, tool
from tracklog.schemas import events as ev
from tracklog.schemas.errors import OutcomeAwaited, PersonNeeded, SettingsError, StoreUnavailable, ToolPending
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import ResultStatus

TIMING: Final = Timing(start_within_s=30.0, grace_s=70.0, outcome_wait_s=10.0)
PAST_GRACE_S: Final = 600.0
STEPS: Final = 150


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every batch is kept, and one without records comes soon."""
    monkeypatch.setattr(partition_loop, "IDLE_FOLD_S", 0.05)
    monkeypatch.setattr(kept, "KEEP_S", 0.0)
    monkeypatch.setattr(kept, "MARK_S", 0.0)


@pytest.fixture
def client(redis_db: str) -> Iterator[RedisClient]:
    client = connect(redis_db, timeout_s=5.0)
    yield client
    client.close()


@pytest.fixture
def world() -> Iterator[World]:
    with ledger() as (_, url):
        world = new_world(url)
        world.log_clock = SystemClock()
        yield world


def keeper_for(world: World, client: RedisClient) -> Keeper:
    return keeper_on(client, world.new_log(), Topics(), clock=SystemClock(), entropy=SystemEntropy(), known_max=1_000)


def _pending(client: RedisClient) -> Iterator[bool]:
    """Of each stored row, whether the tool has its call."""
    for key in client.scan_iter("*:calls"):
        stored: Any = client.hgetall(key)
        yield from (orjson.loads(row)[1] is not None for name, row in stored.items() if name.startswith(b"r"))


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    loop.call_soon_threadsafe(event.set)


class Copy:
    """What the store holds, to bring it back later: as after a failover to a replica that was behind."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._keys = {key: client.dump(key) for key in client.scan_iter("*")}

    def bring_back(self) -> None:
        self._client.flushdb()
        for key, value in self._keys.items():
            self._client.restore(key, 0, value)  # type: ignore[arg-type]


def wipe(client: RedisClient, old: Copy) -> None:
    client.flushdb()


def roll_back(client: RedisClient, old: Copy) -> None:
    old.bring_back()


def lose_calls(client: RedisClient, old: Copy) -> None:
    """One key of it is gone."""
    for key in client.scan_iter("*:calls"):
        client.delete(key)


MISHAPS: Final[dict[str, Callable[[RedisClient, Copy], None]]] = {
    "wiped": wipe,
    "rolled back": roll_back,
    "its calls lost": lose_calls,
}


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_becomes_of_the_store_the_calls_and_their_rows_are_those_of_the_log(
    client: RedisClient, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a partition at which agents, losers and dispatchers write, and a member that follows it
    walk = Walk(f"kept/{seed}")
    chance = random.Random(seed)
    commit = RedisStore.commit
    trouble = ""

    def troubled(self: Any, *arguments: Any) -> Any:
        if trouble == "before":
            raise StoreUnavailable("killed before it was written")
        made = commit(self, *arguments)
        if trouble == "after":
            raise StoreUnavailable("killed after it was written")
        return made

    monkeypatch.setattr(RedisStore, "commit", troubled)
    member, old = Member(walk, client), Copy(client)
    began: list[int] = []
    # when it is replaced again and again, and the store is lost, old, or does not answer
    for _ in range(STEPS):
        trouble = ""
        match chance.choice(("step", "step", "step", "fold", "fold", "ledger", "restart", "store", "trouble")):
            case "step":
                walk.step()
            case "fold":
                member.fold()
            case "ledger":
                await member.read_ledger()
            case "trouble":
                trouble = chance.choice(("before", "after"))
                member.fold()
            case "store" if chance.random() < 0.5:
                old = Copy(client)
            case "store" if chance.random() < 0.3:
                MISHAPS[chance.choice(list(MISHAPS))](client, old)
            case "restart" if chance.random() < 0.5:
                await member.close()
                member = Member(walk, client)
                began.append(member.begun[-1][0])
            case _:
                continue
        # then it has the open calls of the log, each with its row as the ledger has it
        assert member.agrees()
        assert member.revoked == 0
    assert any(began), "it never went on from what was stored"
    await member.close()


@pytest.mark.parametrize("effect", ["idempotent", "opaque"])
@pytest.mark.parametrize("death", ["second append", "after the effect"])
@pytest.mark.parametrize("mishap", MISHAPS)
async def test_a_store_that_is_lost_or_old_makes_no_second_effect_and_loses_no_call(
    world: World, client: RedisClient, effect: str, death: str, mishap: str
) -> None:
    # given a dispatcher that dies beside a call, while what it kept is lost or as it was before the call
    world.log_clock = world.clock
    tools, model = dispatched(world.tools()), ScriptedModel(asks(("call-1", effect)), says("done"))
    changes: dict[str, Any] = {"tools": tools, "timing": TIMING}
    dying, log = Dying(world, death), world.new_log()
    log.faults = dying
    async with dispatching(new_dispatcher(world, log, tools, clock=world.clock, keeper=keeper_for(world, client))):
        old = Copy(client)
        agent = asyncio.create_task(world.run(model, **changes))
        await asyncio.wait({agent, asyncio.create_task(dying.died.wait())}, return_when=asyncio.FIRST_COMPLETED)
    agent.cancel()
    await asyncio.gather(agent, return_exceptions=True)
    MISHAPS[mishap](client, old)
    # when its effect has landed or never will, and another one takes the call up
    world.dead, world.die_at_point = False, None
    world.clock.advance(PAST_GRACE_S)
    escalated = False
    keeper = keeper_for(world, client)
    async with dispatching(new_dispatcher(world, world.new_log(), tools, clock=world.clock, keeper=keeper)):
        try:
            await world.run(model, **changes)
        except PersonNeeded:
            escalated = True
    # then there is one effect at most, and the call has a result or a person was asked
    assert effects_of(world.ledger_url, "call-1") <= 1
    assert escalated is (effect == "opaque")
    assert len(world.bodies(ev.ToolResult)) == (0 if escalated else 1)


async def test_a_store_that_moves_under_a_dispatcher_does_not_cut_off_what_it_does(
    world: World, client: RedisClient
) -> None:
    # given a call that is under way
    begun, go_on = asyncio.Event(), asyncio.Event()

    @tool(effect="opaque", run="dispatch")
    async def slow(what: str, context: CallContext) -> str:
        world.ran[context.call_id] += 1
        begun.set()
        await go_on.wait()
        return "made"

    tools = ToolSet.of(slow)
    model = ScriptedModel(asks(("call-1", "slow")), says("done"))
    keeper = keeper_for(world, client)
    dispatcher = new_dispatcher(world, world.new_log(), tools, keeper=keeper)
    async with dispatching(dispatcher):
        agent = asyncio.create_task(world.run(model, tools=tools, clock=SystemClock(), timing=TIMING))
        await asyncio.wait_for(begun.wait(), 10)
        # when the store is wiped, which the next batch notices
        client.flushdb()
        restored = asyncio.Event()
        loop = asyncio.get_running_loop()
        watch(keeper, lambda *_: _set(loop, restored))
        await asyncio.wait_for(restored.wait(), 15)
        go_on.set()
        await asyncio.wait_for(agent, 15)
    # then the call was made once and came out well, and the store has been made anew
    assert world.ran == {"call-1": 1}
    assert [one.status for one in world.bodies(ev.ToolResult)] == [ResultStatus.OK]
    assert list(client.scan_iter("*:calls"))


async def test_a_call_that_is_pending_for_days_is_gone_on_with_from_the_store(
    world: World, client: RedisClient
) -> None:
    # given a call whose tool answers much later, and many that came after it
    @tool(effect="opaque", run="dispatch")
    async def long(what: str, context: CallContext) -> str:
        world.ran[context.call_id] += 1
        raise ToolPending("a job", within_s=3 * 86_400)

    tools = ToolSet.of(long)
    model = ScriptedModel(asks(("call-1", "long")), says("done"))
    changes: dict[str, Any] = {"tools": tools, "clock": SystemClock(), "timing": Timing(outcome_wait_s=1.0)}
    first = keeper_for(world, client)
    async with dispatching(new_dispatcher(world, world.new_log(), tools, keeper=first)) as dispatcher:
        with pytest.raises(OutcomeAwaited):
            await world.run(model, **changes)
        partition = next(iter(number for number, one in dispatcher._partitions.items() if one.calls))
        async with asyncio.timeout(15):
            while not (any(_pending(client)) and open_in_redis(first, 2)):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
    # which is counted as begun, from what is kept as from the log
    counted = open_in_redis(first, 2)
    assert counted is not None
    assert counted[0] == open_in_log(world.new_log(), TOPICS) == {"long": OpenCalls(begun=1)}
    # when another dispatcher takes its partition over
    starts: dict[int, Start] = {}
    keeper = keeper_for(world, client)
    watch(keeper, starts.__setitem__)
    async with dispatching(new_dispatcher(world, world.new_log(), tools, keeper=keeper)) as dispatcher:
        async with asyncio.timeout(15):
            while dispatcher.open_calls == 0:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
    # then it reads neither events nor ledger from their beginning, and knows that the tool has the call
    start = starts[partition]
    assert start.position > 0
    assert start.ledger_from > 0
    (row,) = start.rows.values()
    assert row.row.pending_until is not None
    assert world.ran == {"call-1": 1}


def test_topics_that_were_made_anew_are_refused(client: RedisClient) -> None:
    # given what was kept of one log
    member = Member(Walk("one"), client)
    member.fold()
    # when another one has its names
    with pytest.raises(SettingsError, match="made from the topics"):
        Member(Walk("other", "other"), client)


def test_a_store_that_is_ahead_of_its_log_is_made_anew(client: RedisClient) -> None:
    # given a store whose position the log does not reach (any more)
    walk = Walk("ahead")
    member = Member(walk, client)
    member.fold()
    (checkpoint,) = client.scan_iter("*:checkpoint")
    client.hset(checkpoint, "position", 1_000)
    # when it is gone on from
    again = Member(walk, client)
    # then the partition is folded from the log, and somebody is told
    assert again.begun[-1] == (0, 0)
    assert again.agrees()
    assert "made anew" in again.said[0]
    assert walk.log.bounds(TOPICS.events, 0).end < 1_000
