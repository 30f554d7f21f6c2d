"""Following all trajectories: what is given out, in which order, and where it goes on."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from tests.support.chains import Chain, append_all, run_of
from tests.support.memory_logs import memory_log
from tracklog.consumers.read_events import Standing
from tracklog.consumers.replay import Filter, Range, follow
from tracklog.consumers.watch_merge import HELD_MAX, HOLD_S
from tracklog.consumers.watching import Token, Wanted, Watched, start_of, watch
from tracklog.infra.clock import ManualClock
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log, Reader
from tracklog.schemas import events as ev
from tracklog.schemas.errors import InputError, RangeError
from tracklog.schemas.values import Body, Ref, Role

TOPIC = "tracklog.events"
PARTITIONS = 3
BOUND_S = 20.0


@pytest.fixture
def log() -> Log:
    return memory_log(PARTITIONS)


async def taken(stream: AsyncIterator[Watched], count: int) -> list[Watched]:
    found: list[Watched] = []
    async with asyncio.timeout(BOUND_S):
        async for watched in stream:
            found.append(watched)
            if len(found) == count:
                break
    return found


async def test_every_accepted_event_comes_once_in_the_order_of_its_trajectory(log: Log) -> None:
    chains = [run_of(f"run-{n}", turns=2) for n in range(5)]
    made = [record for chain in chains for record in chain.records]
    append_all(log, TOPIC, [one for record in made for one in (record, record)])

    found = await taken(watch(log, TOPIC, start="beginning"), len(made))

    for chain in chains:
        seqs = [one.event.envelope.seq for one in found if one.record.key == chain.trajectory_id.encode()]
        assert seqs == list(range(len(chain.records)))
    assert not any(one.trusted for one in found)


async def test_a_stream_reads_as_one_that_follows(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its reader asks the broker 500 times a second for as long as something comes now and then."""
    asked, plain = list[bool](), log.reader

    def reader(topic: str, starts: Mapping[int, int], *, follows: bool = False) -> Reader:
        asked.append(follows)
        return plain(topic, starts, follows=follows)

    monkeypatch.setattr(log, "reader", reader)
    append_all(log, TOPIC, run_of("trip-1").records)

    assert await taken(watch(log, TOPIC, start="beginning"), 1)
    assert next(
        follow(log, TOPIC, [Range(p, 0, 0, "") for p in range(PARTITIONS)], Filter(), clock=ManualClock(), for_s=None)
    )

    assert asked == [True, True]


async def test_from_now_on_gives_what_comes_later_and_takes_the_first_of_a_run_on_trust(log: Log) -> None:
    chain = run_of("run", turns=1, ending=None)
    append_all(log, TOPIC, chain.records)
    stream = watch(log, TOPIC)
    first = asyncio.ensure_future(taken(stream, 3))
    await asyncio.sleep(0)
    later = [chain.add(ev.MessageReceived(peer="user", role=Role.USER, message=Body.of(str(n)))) for n in range(2)]
    stale = chain.peek(ev.TimerFired(timer_id="never accepted"))
    chain.claim("next")
    while not first.done():
        append_all(log, TOPIC, [*later, chain.records[-1], stale])
        await asyncio.wait([first], timeout=0.1)

    found = first.result()
    assert [one.event.name for one in found] == ["MessageReceived", "MessageReceived", "OwnershipClaimed"]
    assert [one.trusted for one in found] == [True, False, False]


async def test_a_stream_that_was_cut_goes_on_behind_its_token(log: Log) -> None:
    made = [record for n in range(6) for record in run_of(f"run-{n}", turns=1).records]
    append_all(log, TOPIC, made)
    whole = await taken(watch(log, TOPIC, start="beginning"), len(made))

    for cut in (1, 7, len(made) - 1):
        token = Token.of(str(whole[cut - 1].token))
        rest = await taken(watch(log, TOPIC, start=token), len(made) - cut)
        assert [(one.record.partition, one.record.offset) for one in rest] == [
            (one.record.partition, one.record.offset) for one in whole[cut:]
        ]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Wanted(types=frozenset({"TaskEnded"})), {"TaskEnded"}),
        (Wanted(tenants=frozenset({"north"}), types=frozenset({"TaskStarted"})), {"TaskStarted"}),
    ],
)
async def test_only_what_is_wanted_is_given_out(log: Log, wanted: Wanted, names: set[str]) -> None:
    for n, tenant in enumerate(("north", "south", "north")):
        append_all(log, TOPIC, run_of(f"run-{n}", turns=1, tenant=tenant).records)

    found = await taken(watch(log, TOPIC, start="beginning", wanted=wanted), 2)

    assert {one.event.name for one in found} == names
    if wanted.tenants:
        assert [one.event.envelope.trajectory_id for one in found] == ["run-0", "run-2"]


def two_apart() -> tuple[str, str]:
    """Trajectory ids of two partitions, the second read first."""
    by_partition = {partition_of(f"run-{n}".encode(), PARTITIONS): f"run-{n}" for n in range(50)}
    return by_partition[2], by_partition[0]


def caused(seq: int) -> Chain:
    """A run whose first message follows from an event of another partition."""
    cause, effect = two_apart()
    chain = Chain(effect)
    chain.claim()
    chain.add(
        ev.MessageReceived(peer=cause, role=Role.AGENT, message=Body.of("go")),
        causes=(Ref(trajectory_id=cause, seq=seq),),
    )
    return chain


async def test_an_event_comes_after_the_one_that_it_names_as_its_cause(log: Log) -> None:
    cause = run_of(two_apart()[0], turns=1)
    effect = caused(seq=len(cause.records) - 1)
    append_all(log, TOPIC, [*effect.records, *cause.records])

    found = await taken(watch(log, TOPIC, start="beginning"), len(cause.records) + 2)

    assert found[-1].event.name == "MessageReceived"
    assert found[-1].event.envelope.causes


async def test_an_event_whose_cause_does_not_come_is_held_for_a_second_and_no_longer(log: Log) -> None:
    append_all(log, TOPIC, caused(seq=3).records)
    loop = asyncio.get_running_loop()
    begun_s = loop.time()

    found = await taken(watch(log, TOPIC, start="beginning"), 2)

    assert [one.event.name for one in found] == ["OwnershipClaimed", "MessageReceived"]
    assert loop.time() - begun_s >= HOLD_S


async def test_an_event_that_waits_holds_up_its_own_trajectory_and_nothing_else(log: Log) -> None:
    """And a stream that is cut meanwhile gives out what waited, and nothing twice."""
    held = caused(seq=3)
    held.add(ev.TimerFired(timer_id="behind it"))
    partition = partition_of(held.trajectory_id.encode(), PARTITIONS)
    beside = next(name for n in range(99) if partition_of((name := f"beside-{n}").encode(), PARTITIONS) == partition)
    others = run_of(beside, turns=1)
    append_all(log, TOPIC, [*held.records, *others.records])
    loop = asyncio.get_running_loop()

    # given a stream that gives out all of the other one while the first waits
    begun_s = loop.time()
    found = await taken(watch(log, TOPIC, start="beginning"), 1 + len(others.records))
    assert loop.time() - begun_s < HOLD_S
    assert [one.event.envelope.trajectory_id for one in found] == [held.trajectory_id] + [beside] * len(others.records)
    token = Token.of(str(found[-1].token))
    assert token == found[-1].token
    assert token.held == {partition: (1, 2)}

    # when another one goes on behind it
    rest = await taken(watch(log, TOPIC, start=token), 2)

    # then that has both, in their order
    assert [one.event.name for one in rest] == ["MessageReceived", "TimerFired"]
    assert rest[-1].token == Token({**token.positions}, {})


async def test_of_many_that_wait_the_oldest_goes_out(log: Log) -> None:
    cause, _ = two_apart()
    names = [f"waits-{n}" for n in range(HELD_MAX + 20)]
    chains = []
    for name in names:
        chain = Chain(name)
        chain.claim()
        chain.add(ev.TimerFired(timer_id="t"), causes=(Ref(trajectory_id=cause, seq=3),))
        chains.append(chain)
    append_all(log, TOPIC, [record for chain in chains for record in chain.records])
    clock = ManualClock()

    found = await taken(watch(log, TOPIC, start="beginning", clock=clock), len(names) + 20)

    out = [one.event.envelope.trajectory_id for one in found if one.event.name == "TimerFired"]
    assert len(out) == 20
    assert len(Token.of(str(found[-1].token)).held) > 0
    assert sum(map(len, found[-1].token.held.values())) <= HELD_MAX


async def test_a_stream_begins_at_the_offsets_named_and_from_now_on_elsewhere(log: Log) -> None:
    chains = [run_of(f"run-{n}", turns=1) for n in range(9)]
    append_all(log, TOPIC, [record for chain in chains for record in chain.records])
    end = log.bounds(TOPIC, 1).end

    found = await taken(watch(log, TOPIC, start={1: end - 2}), 2)

    assert [(one.record.partition, one.record.offset) for one in found] == [(1, end - 2), (1, end - 1)]
    for start in ({1: end + 1}, {PARTITIONS: 0}):
        with pytest.raises(RangeError, match=r"ends at offset|no partition"):
            await taken(watch(log, TOPIC, start=start), 1)
    assert (start_of("1:5, 2:0"), start_of("end")) == ({1: 5, 2: 0}, "end")


async def test_agents_and_statuses_are_what_is_folded_of_trajectories(log: Log) -> None:
    for n in range(4):
        append_all(log, TOPIC, run_of(f"run-{n}", turns=1).records)
    asked = list[set[str]]()

    async def standings(events: Sequence[Watched]) -> Mapping[str, Standing]:
        names = {one.event.envelope.trajectory_id for one in events}
        asked.append(names)
        return {one: Standing("traveller", "failed" if one == "run-1" else "completed") for one in names - {"run-2"}}

    wanted = Wanted(types=frozenset({"TaskEnded"}), agents=frozenset({"traveller"}), statuses=frozenset({"completed"}))
    found = await taken(watch(log, TOPIC, start="beginning", wanted=wanted, standings=standings), 2)

    assert {one.event.envelope.trajectory_id for one in found} == {"run-0", "run-3"}
    assert set().union(*asked) == {f"run-{n}" for n in range(4)}
    with pytest.raises(InputError, match="give `standings`"):
        await taken(watch(log, TOPIC, wanted=wanted), 1)


HELD_BEYOND = base64.urlsafe_b64encode(b"[[5,5],[[0,5]]]").decode().rstrip("=")
HELD_NOWHERE = base64.urlsafe_b64encode(b"[[5,5],[[2,1]]]").decode().rstrip("=")
HELD_TOO_MANY = base64.urlsafe_b64encode(b"[[900],[[0," + b",".join(b"%d" % n for n in range(200)) + b"]]]").decode()


@pytest.mark.parametrize(
    "text", ["", HELD_BEYOND, HELD_NOWHERE, HELD_TOO_MANY.rstrip("="), "nonsense", "W10", "Wy0xXQ"]
)
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(RangeError, match="is no token"):
        Token.of(text)


async def test_a_token_of_another_log_and_a_time_that_is_none_are_refused(log: Log) -> None:
    with pytest.raises(RangeError, match="1 partitions"):
        await taken(watch(log, TOPIC, start=Token({0: 5})), 1)
    with pytest.raises(RangeError):
        await taken(watch(log, TOPIC, start="yesterday"), 1)
