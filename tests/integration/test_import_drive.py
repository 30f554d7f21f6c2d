"""Recorded runs into a log: each once, whatever happens in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.importing import (
    assert_in_once,
    chat_line,
    chat_record,
    chat_run,
    events_of_plan,
    import_all,
    recorded_objects,
    work_of,
)
from tests.support.writing import on_log, read_accepted, start, writing
from tracklog.infra import blobs as blobs_module
from tracklog.infra.blobs import BlobStore, open_blobs
from tracklog.infra.log.memory import Fault
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import append_and_wait
from tracklog.producers.data import SHIPPED_RUNS, shipped_runs
from tracklog.producers.importers.chat import parse_chat_jsonl
from tracklog.producers.importers.drive import log_history
from tracklog.producers.importers.plan import located, plan
from tracklog.producers.importers.rebuild import rebuild_record
from tracklog.producers.importers.report import ImportReport
from tracklog.producers.importers.run import BadRun, Run
from tracklog.producers.importers.standing import inbox_source
from tracklog.producers.producer import EventProducer
from tracklog.schemas.errors import AppendRefused, BlobError, Undecided
from tracklog.schemas.events import ModelReplied, ToolIntent
from tracklog.schemas.limits import EVENT_BYTES_MAX
from tracklog.schemas.same_work import same_work
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Driver, InboxId, Ref

EVENTS = 7445
"""Of the 125 shipped runs, claims and releases not counted."""


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return open_blobs(str(tmp_path / "blobs"))


def small_runs(count: int) -> list[Run]:
    return [chat_run(id=f"run-{n}") for n in range(count)]


def records(log: Log, prefix: str = "tracklog") -> int:
    topic = Topics(prefix).events
    return sum(log.bounds(topic, p).end for p in range(log.partition_count(topic)))


async def write_part(producer: EventProducer, run: Run, steps: int) -> None:
    """What an importer that was killed leaves behind: a claim, some steps, no release."""
    writer = await producer.claim(run.trajectory_id, owner="killed", driver=Driver.IMPORT)
    seqs: list[int] = []
    for number, planned in enumerate(plan(run)[:steps]):
        appended = await writer.append(
            located(planned.body, seqs),
            turn=planned.turn,
            causes=tuple(Ref(trajectory_id=run.trajectory_id, seq=seqs[step]) for step in planned.causes),
            inbox_id=InboxId(source=inbox_source(run), seq=number),
            ext=planned.ext,
        )
        seqs.append(appended.seq)
    await writer.barrier()


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("kafka", marks=pytest.mark.kafka)])
async def test_the_shipped_runs_go_in_once_and_come_out_as_they_were(
    kind: str, log_urls: Callable[[str], str], fresh_prefix: str, blobs: BlobStore
) -> None:
    runs = list(shipped_runs())
    told: list[ImportReport] = []
    async with on_log(log_urls(kind), fresh_prefix) as (log, producer):
        report = await import_all(log, producer, blobs, runs, prefix=fresh_prefix, on_progress=told.append)
        assert report == ImportReport(new=SHIPPED_RUNS, events=EVENTS)
        assert records(log, fresh_prefix) == EVENTS + 2 * SHIPPED_RUNS
        assert [one.runs for one in told] == [*range(1, SHIPPED_RUNS + 1), SHIPPED_RUNS]
        again = await import_all(log, producer, blobs, runs, prefix=fresh_prefix)
        assert again == ImportReport(already=SHIPPED_RUNS)
        assert records(log, fresh_prefix) == EVENTS + 2 * SHIPPED_RUNS
        history = log_history(log, Topics(fresh_prefix).events)
        sampled = list(zip(runs, recorded_objects(), strict=True))[::12]
        for run, record in sampled:
            assert isinstance(run, Run)
            assert rebuild_record(history(run.trajectory_id), blobs) == record


async def test_every_cut_of_a_run_is_finished_and_no_step_is_there_twice(blobs: BlobStore) -> None:
    steps = len(plan(chat_run()))
    runs = small_runs(steps + 1)
    async with writing() as (log, producer):
        for count, run in enumerate(runs):
            await write_part(producer, run, count)
    async with writing(store=log.store) as (log, producer):
        report = await import_all(log, producer, blobs, runs)
        assert report._replace(events=0) == ImportReport(new=1, resumed=steps - 1, already=1)
        assert report.events == sum(range(1, steps + 1))
        assert_in_once(log, runs)
        assert await import_all(log, producer, blobs, runs) == ImportReport(already=steps + 1)


async def test_a_run_resumed_many_times_refers_to_the_right_events(blobs: BlobStore) -> None:
    """Each resumption puts a claim between the steps, so seqs and step numbers drift apart."""
    run = next(run for run in shipped_runs() if isinstance(run, Run) and len(plan(run)) > 60)
    async with writing(pipelined_events_max=2) as (log, producer):
        for _ in range(4):
            claimed = await producer.claim(run.trajectory_id, owner="passing", driver=Driver.IMPORT)
            await claimed.release()
        for _ in range(3):
            log.faults = cancelling(after=15)
            with pytest.raises(asyncio.CancelledError):
                await import_all(log, producer, blobs, [run])
            log.faults = None
        report = await import_all(log, producer, blobs, [run])
        assert (report.resumed, report.new) == (1, 0)
        assert_in_once(log, [run])
        assert same_work(read_accepted(log, run.trajectory_id), events_of_plan(run, blobs)) is None


def cancelling(after: int) -> Callable[[str, bytes, bytes], Fault | None]:
    """Cancels the task that runs now after so many appends, from within the log."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    count = iter(range(1, 1_000_000))

    def faults(topic: str, key: bytes, value: bytes) -> Fault | None:
        if next(count) == after and task is not None:
            loop.call_soon_threadsafe(task.cancel)
        return None

    return faults


async def test_an_interrupted_import_says_what_is_durable_and_is_finished_later(blobs: BlobStore) -> None:
    runs = small_runs(40)
    told: list[ImportReport] = []
    async with writing() as (log, producer):
        log.faults = cancelling(after=100)
        with pytest.raises(asyncio.CancelledError):
            await import_all(log, producer, blobs, runs, concurrency=4, on_progress=told.append)
        log.faults = None
        interrupted = told[-1]
        accepted = [work_of(read_accepted(log, run.trajectory_id)) for run in runs]
        assert 0 < interrupted.runs < 40
        assert interrupted.events <= sum(map(len, accepted))
        assert sum(len(work) == len(plan(runs[0])) for work in accepted) >= interrupted.new
        report = await import_all(log, producer, blobs, runs)
        assert report.runs == 40
        assert report.events + sum(map(len, accepted)) == 40 * len(plan(runs[0]))
        assert_in_once(log, runs)


@pytest.mark.parametrize("kind", ["memory", "sqlite", pytest.param("kafka", marks=pytest.mark.kafka)])
async def test_two_importers_at_once_write_each_step_once_and_neither_fails(
    kind: str, log_urls: Callable[[str], str], fresh_prefix: str, blobs: BlobStore
) -> None:
    url = f"memory:{fresh_prefix}" if kind == "memory" else log_urls(kind)
    runs = small_runs(24)
    async with on_log(url, fresh_prefix) as (log, one), on_log(url, fresh_prefix) as (other, two):
        first, second = await asyncio.gather(
            import_all(log, one, blobs, runs, prefix=fresh_prefix, owner="one", concurrency=8),
            import_all(other, two, blobs, runs, prefix=fresh_prefix, owner="two", concurrency=8),
        )
        for report in (first, second):
            assert (report.runs, report.refused, report.conflicts, report.exit_code) == (24, (), (), 0)
        last = await import_all(log, one, blobs, runs, prefix=fresh_prefix)
        assert last.conflicts == ()
        assert first.events + second.events + last.events <= 24 * len(plan(runs[0]))
        assert_in_once(log, runs, fresh_prefix)


async def test_a_run_that_another_importer_is_writing_is_named(blobs: BlobStore) -> None:
    run = chat_run()
    held = asyncio.Event()
    count = iter(range(1_000_000))

    def faults(topic: str, key: bytes, value: bytes) -> Fault | None:
        if next(count) < 3:
            return None
        held.set()
        return Fault.DELAY

    async with writing() as (log, mine), writing(store=log.store) as (_, other):
        await write_part(other, run, 3)
        log.faults = faults
        importing = asyncio.create_task(import_all(log, mine, blobs, [run]))
        await asyncio.wait_for(held.wait(), 10)
        await other.claim(run.trajectory_id, owner="other", driver=Driver.IMPORT)
        log.release()
        report = await asyncio.wait_for(importing, 10)
    assert report == ImportReport(taken=("run-1",))
    assert report.exit_code == 0


async def test_whatever_the_log_does_each_step_is_in_once(blobs: BlobStore) -> None:
    runs = small_runs(6)
    kinds = [Fault.STORE_UNKNOWN, Fault.DROP_UNKNOWN, Fault.REFUSE, Fault.QUEUE_FULL]
    for seed in range(12):
        dice = random.Random(seed)

        def faults(topic: str, key: bytes, value: bytes, dice: random.Random = dice) -> Fault | None:
            return dice.choice(kinds) if dice.random() < 0.05 else None

        async with writing(faults=faults) as (log, producer):
            report = await import_all(log, producer, blobs, runs)
            assert report == ImportReport(new=6, events=6 * len(plan(runs[0]))), f"seed {seed}"
            assert_in_once(log, runs)


async def test_a_log_that_refuses_stops_the_import_and_it_goes_on_later(blobs: BlobStore) -> None:
    runs = small_runs(10)
    count = iter(range(1_000_000))

    def disk_full(topic: str, key: bytes, value: bytes) -> Fault | None:
        return Fault.REFUSE if next(count) > 40 else None

    told: list[ImportReport] = []
    async with writing(faults=disk_full) as (log, producer):
        with pytest.raises((AppendRefused, Undecided)):
            await import_all(log, producer, blobs, runs, concurrency=2, on_progress=told.append)
        assert told[-1].runs < 10
        log.faults = None
    async with writing(store=log.store) as (log, producer):
        report = await import_all(log, producer, blobs, runs)
        assert (report.runs, report.conflicts) == (10, ())
        assert_in_once(log, runs)


async def test_no_event_names_a_blob_that_could_not_be_stored(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    async with writing() as (log, producer):
        with pytest.raises(BlobError):
            await import_all(log, producer, open_blobs(str(tmp_path / "file")), small_runs(3))
        assert {e.name for run in small_runs(3) for e in read_accepted(log, run.trajectory_id)} <= {
            "OwnershipClaimed",
            "OwnershipReleased",
        }
        report = await import_all(log, producer, open_blobs(str(tmp_path / "blobs")), small_runs(3))
        assert report == ImportReport(new=3, events=3 * len(plan(chat_run())))


async def test_bad_runs_are_reported_and_the_others_go_in(blobs: BlobStore) -> None:
    bad = BadRun(file="some.jsonl", line=2, reason="not JSON")
    async with writing() as (log, producer):
        report = await import_all(log, producer, blobs, [*small_runs(1), bad, chat_run(id="last")])
    assert (report.new, report.refused, report.exit_code) == (2, (bad,), 1)


async def test_an_id_that_holds_something_else_is_a_conflict_that_says_what(blobs: BlobStore) -> None:
    ids = ["imported", "live", "tenant", "parked", "twice"]
    mine = [chat_run(id=one, extra="mine") for one in ids]
    async with writing() as (log, producer):
        await import_all(log, producer, blobs, [chat_run(id="imported", extra="theirs")])
        await import_all(log, producer, blobs, [mine[2]], tenant="other")
        live = await producer.claim("live", owner="agent", driver=Driver.LIBRARY)
        await live.append(start())
        await live.release()
        await park(log, producer, mine[3])
        before = records(log)
        report = await import_all(log, producer, blobs, [*mine, mine[4], chat_run(id="twice", extra="theirs")])
        assert records(log) == before + len(plan(mine[4])) + 2
    assert (report.new, report.already, report.exit_code) == (1, 1, 1)
    reasons = {conflict.trajectory_id: conflict.reason for conflict in report.conflicts}
    assert "holds another run" in reasons["imported"]
    assert "its driver is 'library'" in reasons["live"]
    assert "belongs to tenant 'other', not to 'default'" in reasons["tenant"]
    assert "it is parked: event" in reasons["parked"]
    assert reasons["twice"] == "another run of the same import has this id"


async def park(log: Log, producer: EventProducer, run: Run) -> None:
    """Leaves a trajectory with a record that does not have the hash it states."""
    await write_part(producer, run, 4)
    topic, key = Topics().events, run.trajectory_id.encode()
    partition = partition_of(key, log.partition_count(topic))
    bounds = log.bounds(topic, partition)
    reader = log.reader(topic, {partition: bounds.first})
    last = [r for r in reader.poll(1000, 1.0) if r.key == key][-1]
    reader.close()
    assert last.value is not None
    append_and_wait(log, topic, key, last.value[:-1] + b"?", last.headers, timeout_s=5)


async def test_long_texts_are_stored_before_the_event_and_come_back_whole(blobs: BlobStore) -> None:
    record = chat_record(extra="e" * 3000)
    record["messages"][1]["content"] = "größer " * 500
    record["messages"][2]["tool_calls"][0]["function"]["arguments"] = "a" * 3000
    record["messages"][3]["content"] = "😀" * 3000
    run = chat_run(**record)
    async with writing() as (log, producer):
        await import_all(log, producer, blobs, [run], body_inline_bytes_max=500)
        events = read_accepted(log, run.trajectory_id)
    bodies = [e.body for e in events]
    intent = next(body for body in bodies if isinstance(body, ToolIntent))
    assert (len(intent.arguments.text), intent.arguments.size_bytes, intent.arguments.stored) == (500, 3000, True)
    assert rebuild_record(events, blobs) == record


async def test_the_largest_bodies_leave_an_event_until_it_fits(blobs: BlobStore) -> None:
    """The arguments are twice in a reply: in its message, which can be stored, and as text, which cannot."""
    record = chat_record()
    record["messages"][2]["tool_calls"][0]["function"]["arguments"] = "a" * 600_000
    run = chat_run(**record)
    async with writing() as (log, producer):
        report = await import_all(log, producer, blobs, [run], body_inline_bytes_max=EVENT_BYTES_MAX)
        events = read_accepted(log, run.trajectory_id)
    assert report.new == 1
    assert next(e.body for e in events if isinstance(e.body, ModelReplied)).reply.stored
    assert rebuild_record(events, blobs) == record


async def test_a_run_larger_than_a_blob_is_refused_unclaimed_and_the_others_go_in(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs_module, "BLOB_BYTES_MAX", 5000)
    large = chat_record(id="large")
    large["messages"][1]["content"] = "a" * 6000
    lines = [chat_line(record) for record in (chat_record(id="first"), large, chat_record(id="last"))]
    async with writing() as (log, producer):
        for new in (2, 0):
            runs = parse_chat_jsonl(lines, "some.jsonl")
            report = await import_all(log, producer, blobs, runs, body_inline_bytes_max=500)
            assert (report.new, report.conflicts, report.exit_code) == (new, (), 1)
            (bad,) = report.refused
            assert str(bad) == "some.jsonl:2: large: blob of 6000 bytes is larger than BLOB_BYTES_MAX=5000"
        assert read_accepted(log, "large", raw=True) == []


async def test_a_step_that_fails_leaves_no_claim_behind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    async with writing() as (log, producer):
        with pytest.raises(BlobError):
            await import_all(log, producer, open_blobs(str(tmp_path / "file")), small_runs(1))
        assert [e.name for e in read_accepted(log, "run-0")] == ["OwnershipClaimed", "OwnershipReleased"]


async def test_many_refused_runs_cost_no_more_each_than_few(blobs: BlobStore) -> None:
    bad = [BadRun(file="some.jsonl", line=n, reason="not JSON") for n in range(1, 20_001)]
    told: list[ImportReport] = []
    async with writing() as (log, producer):
        runs: list[Run | BadRun] = [*bad[:100], chat_run()]
        runs += [*bad[100:], *[chat_run()] * 5000, *[chat_run(extra="theirs")] * 20_000]
        async with asyncio.timeout(20):
            report = await import_all(log, producer, blobs, runs, on_progress=told.append)
    assert report.refused == tuple(bad)
    assert (report.new, report.already, len(report.conflicts)) == (1, 5000, 20_000)
    assert len(told[0].refused) < len(told[-1].refused) == 20_000
    assert list(told[0].refused) == bad[: len(told[0].refused)]
