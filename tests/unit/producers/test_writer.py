"""The writer against a log that loses, delays, refuses and repeats (DESIGN §5, §8 rules 1 to 3)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from tests.support.writing import HEAD_ONE, WORK, call_events, read_accepted, start, writing
from tracklog.infra.log.memory import Fault
from tracklog.infra.log.memory_store import MemoryStore
from tracklog.producers.producer import EventProducer
from tracklog.schemas.errors import (
    AppendRefused,
    BarrierTooWeak,
    ClaimLost,
    Fenced,
    InvalidEvent,
    InvalidTrajectoryId,
    RecordTooLarge,
    TrajectoryEnded,
    TrajectoryFaulty,
    Undecided,
)
from tracklog.schemas.events import OwnershipClaimed, OwnershipReleased, TaskEnded, ToolIntent
from tracklog.schemas.limits import EVENT_BYTES_MAX
from tracklog.schemas.values import Body, Driver, Effect, Ending, InboxId, Place


def once(fault: Fault, at: int) -> Callable[[str, bytes, bytes], Fault | None]:
    """The fault for the append with this number, counted from 0."""
    count = iter(range(1_000_000))
    return lambda topic, key, value: fault if next(count) == at else None


async def write_run(producer: EventProducer, trajectory_id: str = "t-1") -> None:
    writer = await producer.claim(trajectory_id, owner="here", driver=Driver.LIBRARY)
    await writer.append(start())
    for body in call_events(3):
        await writer.append(body)
    await writer.append(TaskEnded(ending=Ending.COMPLETED))
    await writer.release()


async def test_what_was_written_is_accepted_in_order() -> None:
    async with writing() as (log, producer):
        await write_run(producer)
        names = [event.name for event in read_accepted(log, "t-1")]
    assert names[0] == "OwnershipClaimed"
    assert names[-2:] == ["TaskEnded", "OwnershipReleased"]
    assert len(names) == 4 + len(call_events(3))


@pytest.mark.parametrize("fault", [Fault.STORE_UNKNOWN, Fault.DROP_UNKNOWN, Fault.REFUSE, Fault.QUEUE_FULL])
@pytest.mark.parametrize("at", range(0, 20, 3))
async def test_one_fault_anywhere_changes_nothing_that_is_accepted(fault: Fault, at: int) -> None:
    """Lost write, unobserved write, refusal, full queue: at the claim, in the middle, at the end."""
    async with writing() as (calm_log, calm):
        await write_run(calm)
        expected = [event.body for event in read_accepted(calm_log, "t-1")[1:-1]]
    async with writing(faults=once(fault, at)) as (log, producer):
        await write_run(producer)
        assert [event.body for event in read_accepted(log, "t-1")[1:-1]] == expected


async def test_a_late_copy_after_the_append_was_repeated_is_a_duplicate() -> None:
    async with writing(faults=once(Fault.DELAY_UNKNOWN, 4)) as (log, producer):
        await write_run(producer)
        before = [event.hash for event in read_accepted(log, "t-1")]
        assert log.release() == 1
        assert [event.hash for event in read_accepted(log, "t-1")] == before


@pytest.mark.parametrize("seed", range(12))
async def test_many_random_faults_never_lose_or_double_an_event(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [Fault.STORE_UNKNOWN, Fault.DROP_UNKNOWN, Fault.REFUSE, Fault.QUEUE_FULL, Fault.DELAY_UNKNOWN]

    def faults(topic: str, key: bytes, value: bytes) -> Fault | None:
        return rng.choice(kinds) if rng.random() < 0.15 else None

    async with writing(faults=faults) as (log, producer):
        await asyncio.gather(*(write_run(producer, f"t-{n}") for n in range(4)))
        log.faults = None
        log.release()
        for n in range(4):
            events = read_accepted(log, f"t-{n}")
            assert [event.envelope.seq for event in events] == list(range(len(events)))
            assert [e.body for e in events[1:-1]] == [start(), *call_events(3), TaskEnded(ending=Ending.COMPLETED)]


async def test_a_second_claim_fences_the_first_owner() -> None:
    async with writing() as (_, producer):
        first = await producer.claim("t-1", owner="a", driver=Driver.LIBRARY)
        await first.append(start())
        await first.barrier()
        second = await producer.claim("t-1", owner="b", driver=Driver.LIBRARY)
        await first.append(WORK[0])
        with pytest.raises(Fenced, match="taken over"):
            await first.confirm()
        with pytest.raises(Fenced):
            await first.append(WORK[0])
        assert second.epoch == 2
        assert (await second.confirm()).head.epoch == 2


async def test_of_claims_at_once_exactly_one_is_accepted() -> None:
    """Two processes on one log, both having read the same head."""
    store = MemoryStore()
    async with writing(store=store) as (log, one), writing(store=store) as (_, two):
        outcomes = await asyncio.gather(
            *(p.claim("t-1", owner=str(n), driver=Driver.WORKER) for n, p in enumerate((one, two, one, two))),
            return_exceptions=True,
        )
        lost = [o for o in outcomes if isinstance(o, ClaimLost)]
        accepted = [e for e in read_accepted(log, "t-1") if isinstance(e.body, OwnershipClaimed)]
    assert all(isinstance(o, ClaimLost) or not isinstance(o, BaseException) for o in outcomes)
    assert len(accepted) >= 1
    assert len(lost) >= len(outcomes) - len(accepted)


async def test_a_takeover_keeps_what_was_accepted_of_a_pipeline() -> None:
    """An accepted prefix stands, the rest falls [W04]."""
    store = MemoryStore()
    async with writing(store=store, faults=once(Fault.DROP_UNKNOWN, 3)) as (log, one), writing(store=store) as (_, two):
        writer = await one.claim("t-1", owner="one", driver=Driver.LIBRARY)
        await writer.append(start())
        await writer.append(WORK[0])
        await writer.append(WORK[1])
        await writer.append(WORK[2])
        log.flush(5)
        successor = await two.claim("t-1", owner="two", driver=Driver.LIBRARY)
        with pytest.raises(Fenced):
            await writer.barrier()
        state = await successor.confirm()
        names = [event.name for event in read_accepted(log, "t-1")]
    assert names == ["OwnershipClaimed", "TaskStarted", "ContextBuilt", "OwnershipClaimed"]
    assert state.faults == 0


async def test_a_log_that_stays_silent_ends_in_undecided_within_the_bound() -> None:
    async with writing(reconcile_timeout_s=0.2) as (log, producer):
        writer = await producer.claim("t-1", owner="a", driver=Driver.LIBRARY)
        log.faults = lambda topic, key, value: Fault.DROP_UNKNOWN
        await writer.append(start())
        with pytest.raises(Undecided, match="may or may not be there") as caught:
            await writer.barrier()
    assert not caught.value.definite


async def test_a_log_that_keeps_refusing_raises_the_refusal() -> None:
    async with writing() as (log, producer):
        writer = await producer.claim("t-1", owner="a", driver=Driver.LIBRARY)
        log.faults = lambda topic, key, value: Fault.REFUSE
        await writer.append(start())
        with pytest.raises(AppendRefused):
            await writer.barrier()


async def test_the_next_owner_goes_on_after_an_undecided_one() -> None:
    async with writing(reconcile_timeout_s=0.1) as (log, producer):
        writer = await producer.claim("t-1", owner="a", driver=Driver.LIBRARY)
        log.faults = lambda topic, key, value: Fault.DELAY_UNKNOWN
        await writer.append(start())
        with pytest.raises(Undecided):
            await writer.barrier()
        log.faults = None
        successor = await producer.claim("t-1", owner="b", driver=Driver.LIBRARY)
        await successor.append(start())
        await successor.barrier()
        log.release()
        state = await successor.confirm()
        names = [event.name for event in read_accepted(log, "t-1")]
    assert names == ["OwnershipClaimed", "OwnershipClaimed", "TaskStarted"]
    assert state.faults == 0


async def test_a_cancelled_append_leaves_a_writer_that_can_go_on() -> None:
    """Ctrl-C in the middle of back-pressure: the log is asked what became of it."""
    async with writing() as (log, producer):
        writer = await producer.claim("t-1", owner="a", driver=Driver.LIBRARY)
        log.faults = lambda topic, key, value: Fault.QUEUE_FULL
        task = asyncio.create_task(writer.append(start()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        log.faults = None
        await writer.barrier()
        await writer.append(WORK[0])
        await writer.release()
        names = [event.name for event in read_accepted(log, "t-1")]
    assert names == ["OwnershipClaimed", "TaskStarted", "ContextBuilt", "OwnershipReleased"]


async def test_a_pipeline_is_bounded() -> None:
    async with writing(pipelined_events_max=2) as (log, producer):
        await write_run(producer)
        assert len(read_accepted(log, "t-1")) == 4 + len(call_events(3))


async def test_events_that_have_no_place_are_refused_before_they_are_written() -> None:
    async with writing() as (log, producer):
        writer = await producer.claim("t-1", owner="a", driver=Driver.LIBRARY)
        with pytest.raises(InvalidEvent, match="claimed"):
            await writer.append(WORK[0])
        await writer.append(start())
        intent = ToolIntent(
            call_id="c9", tool="book", arguments=Body.of("{}"), effect=Effect.OPAQUE, place=Place.RECORDED
        )
        with pytest.raises(InvalidEvent, match=r"'c9'.*not open"):
            await writer.append(intent)
        for body in call_events(1)[:-1]:
            await writer.append(body)
        with pytest.raises(InvalidEvent, match="may have happened"):
            await writer.append(TaskEnded(ending=Ending.COMPLETED))
        await writer.append(call_events(1)[-1])
        await writer.append(TaskEnded(ending=Ending.COMPLETED))
        with pytest.raises(TrajectoryEnded):
            await writer.append(WORK[0])
        await writer.barrier()
        assert read_accepted(log, "t-1")[-1].name == "TaskEnded"


async def test_an_event_over_the_limit_is_refused_and_the_writer_goes_on() -> None:
    async with writing() as (log, producer):
        writer = await producer.claim("t-1", owner="a", driver=Driver.LIBRARY)
        with pytest.raises(RecordTooLarge, match="blob store"):
            await writer.append(start("x" * EVENT_BYTES_MAX))
        await writer.append(start())
        await writer.barrier()
        assert [e.name for e in read_accepted(log, "t-1")] == ["OwnershipClaimed", "TaskStarted"]


@pytest.mark.parametrize("bad", ["", "x" * 257, "a\nb", "é" * 129])
async def test_ids_that_cannot_be_keys_are_refused(bad: str) -> None:
    async with writing() as (_, producer):
        with pytest.raises(InvalidTrajectoryId):
            await producer.claim(bad, owner="a", driver=Driver.LIBRARY)


async def test_more_durability_than_the_topic_gives_is_an_error() -> None:
    async with writing() as (_, producer):
        writer = await producer.claim("t-1", owner="a", driver=Driver.LIBRARY)
        stronger = {"none": "replicated", "replicated": "fsync"}.get(producer.level)
        if stronger is not None:
            with pytest.raises(BarrierTooWeak, match=stronger):
                await writer.barrier(stronger)  # type: ignore[arg-type]
        await writer.barrier(producer.level)


async def test_a_faulty_trajectory_is_parked() -> None:
    async with writing() as (log, producer):
        await write_run(producer)
        broken = bytearray(read_accepted(log, "t-1", raw=True)[1].value or b"")
        broken[-1] ^= 1
        headers = read_accepted(log, "t-1", raw=True)[1].headers
        log.append("tracklog.events", b"t-1", bytes(broken), headers, lambda position, error: None)
        log.flush(5)
        with pytest.raises(TrajectoryFaulty, match="tampered"):
            await producer.claim("t-1", owner="a", driver=Driver.LIBRARY)


async def test_a_trajectory_keeps_its_tenant() -> None:
    async with writing() as (_, producer):
        writer = await producer.claim("t-1", owner="a", driver=Driver.LIBRARY, tenant="acme")
        await writer.append(start())
        await writer.release()
        again = await producer.claim("t-1", owner="a", driver=Driver.LIBRARY)
        assert again.tenant == "acme"
        await again.release()
        with pytest.raises(InvalidEvent, match="tenant"):
            await producer.claim("t-1", owner="a", driver=Driver.LIBRARY, tenant="other")


async def test_the_inbox_sequence_taken_is_kept_by_source() -> None:
    async with writing() as (_, producer):
        writer = await producer.claim("t-1", owner="a", driver=Driver.IMPORT)
        await writer.append(start(), inbox_id=InboxId(source="import:x", seq=0))
        await writer.append(WORK[0], inbox_id=InboxId(source="import:x", seq=1), inbox_position=0)
        state = await writer.confirm()
    assert state.inbox == {"import:x": 1}
    assert state.inbox_position == 0


async def test_seq_zero_epoch_zero_is_the_first_claim() -> None:
    async with writing() as (log, producer):
        await producer.claim("t-1", owner="a", driver=Driver.LIBRARY)
        first = read_accepted(log, "t-1")[0]
    assert (first.envelope.seq, first.envelope.epoch, first.envelope.prev_hash) == HEAD_ONE


async def test_a_writer_releases_at_the_end_of_its_block_and_when_the_block_fails() -> None:
    async with writing() as (log, producer):
        async with await producer.claim("t", owner="a", driver=Driver.LIBRARY) as writer:
            await writer.append(start())
        with pytest.raises(ZeroDivisionError):
            async with await producer.claim("t", owner="a", driver=Driver.LIBRARY):
                raise ZeroDivisionError
        async with await producer.claim("t", owner="a", driver=Driver.LIBRARY) as writer:
            await writer.release("by hand")
        assert [e.body.reason for e in read_accepted(log, "t") if isinstance(e.body, OwnershipReleased)] == [
            "",
            "ZeroDivisionError",
            "by hand",
        ]


async def test_a_writer_that_was_overtaken_or_cancelled_releases_nothing() -> None:
    async with writing() as (log, producer), writing(store=log.store) as (_, other):
        writer = await producer.claim("t", owner="a", driver=Driver.LIBRARY)
        await other.claim("t", owner="b", driver=Driver.LIBRARY)
        await writer.append(start())
        with pytest.raises(Fenced):
            async with writer:
                await writer.confirm()
        with pytest.raises(asyncio.CancelledError):
            async with await producer.claim("t", owner="a", driver=Driver.LIBRARY):
                raise asyncio.CancelledError
        assert {e.name for e in read_accepted(log, "t")} == {"OwnershipClaimed"}
