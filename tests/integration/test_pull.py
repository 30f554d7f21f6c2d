"""One trajectory is brought to a file: all of it, nothing of others, once, and it can be worked with there."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.test_session_checkpoint import NOTES, settings
from tests.integration.test_session_fork import FORK, Other, origin_of, replayed, run_fork
from tests.support.chains import append_all, run_of
from tests.support.ledger import Ledger, ledger
from tests.support.memory_logs import make_topics
from tests.support.sessions import TRAJECTORY, ScriptedModel, World, asks, new_world, says
from tests.support.tampering import flipped
from tests.support.writing import read_accepted
from tracklog.consumers.copying import appended_ms
from tracklog.consumers.pulling import Pulled, pull
from tracklog.consumers.timeline import records_of
from tracklog.infra.blobs import open_blobs
from tracklog.infra.log.memory import MemoryLog
from tracklog.infra.log.memory_store import MemoryStore
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import append_and_wait, read_range
from tracklog.producers.post import Poster
from tracklog.schemas.codec import encode_record
from tracklog.schemas.envelope import LedgerEnvelope
from tracklog.schemas.errors import InputError
from tracklog.schemas.events import CheckpointTaken, ModelReplied
from tracklog.schemas.inbox import Message
from tracklog.schemas.ledger import Attempt
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Body, InboxId, Role

TOPICS = Topics()
LONG = "x" * 100_000


def notes_script() -> ScriptedModel:
    """Writes as NOTES says; nothing but the workspace is touched."""
    return ScriptedModel(
        asks(("c1", "write")), asks(("c2", "write"), ("c3", "write")), asks(("c6", "write")), says("done")
    )


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


@contextmanager
def silent(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    yield lambda steps: None


@contextmanager
def opened(path: Path) -> Iterator[Log]:
    log = open_log(f"sqlite:{path / 'log.db'}")
    yield log
    log.close()


def pulled(world: World, target: Log, path: Path, trajectory_id: str = TRAJECTORY) -> Pulled:
    stores = (world.blobs, open_blobs(str(path / "blobs")))
    return pull(world.new_log(), target, TOPICS, trajectory_id, blobs=stores, progress=silent)


def only_what_was_pulled(path: Path, *trajectory_ids: str) -> World:
    """A world without the one that was pulled from."""
    alone = World("", open_blobs(str(path / "blobs")))
    with opened(path) as target:
        for one in trajectory_ids:
            bring(target, alone, one)
    return alone


def bring(source: Log, world: World, trajectory_id: str) -> None:
    """By hand, and the events alone."""
    log = world.new_log()
    for record in records_of(source, TOPICS.events, trajectory_id):
        append_and_wait(log, TOPICS.events, trajectory_id.encode(), record.value or b"", record.headers, timeout_s=5)


def keys(log: Log) -> dict[str, set[bytes | None]]:
    """Of every record in the log, by topic."""

    def of(topic: str) -> set[bytes | None]:
        bounds = ((one, *log.bounds(topic, one)) for one in range(log.partition_count(topic)))
        return {record.key for one, first, end in bounds for record in read_range(log, topic, one, first, end)}

    return {topic.partition(".")[2]: of(topic) for topic in TOPICS.all}


async def said(world: World, text: str, seq: int, trajectory_id: str = TRAJECTORY) -> None:
    body = Message(peer="ada", role=Role.USER, message=Body.of(text))
    log = world.new_log()
    await Poster(log, TOPICS, clock=world.clock).post(trajectory_id, body, inbox_id=InboxId(source="ada", seq=seq))


def attempted(world: World, trajectory_id: str) -> None:
    envelope = LedgerEnvelope(
        trajectory_id=trajectory_id,
        tenant="default",
        call_id="c1",
        intent_hash=hashlib.sha256(b"intent").digest(),
        slot=0,
        nonce=bytes(16),
        recorded_at=1,
    )
    made = encode_record(envelope, Attempt(dispatcher="d", not_after=1))
    append_and_wait(world.new_log(), TOPICS.attempts, trajectory_id.encode(), made.value, made.headers, timeout_s=5)


async def test_a_fork_comes_with_its_origin_and_can_be_worked_with_alone(
    service: tuple[Ledger, str], tmp_path: Path
) -> None:
    """Given two partitions in which others have records too."""
    world = await origin_of(service[1])
    await run_fork(world, Other())
    others = [run_of(f"other-{n}") for n in range(4)]
    append_all(world.new_log(), TOPICS.events, [made for other in others for made in other.records])
    for trajectory_id in (TRAJECTORY, FORK, "other-1"):
        await said(world, "hurry", 0, trajectory_id)
        attempted(world, trajectory_id)
    before = {one: read_accepted(world.new_log(), one) for one in (TRAJECTORY, FORK)}

    with opened(tmp_path) as target:
        found = pulled(world, target, tmp_path, FORK)

        assert found.trajectories == (TRAJECTORY, FORK)
        assert found.whole
        mine = {TRAJECTORY.encode(), FORK.encode()}
        empty: dict[str, set[bytes | None]] = {"quarantine": set(), "controls": set()}
        assert keys(target) == {"events": mine, "inbox": mine, "attempts": mine, **empty}
        assert {one: read_accepted(target, one) for one in before} == before
        source = world.new_log()
        for topic in (TOPICS.events, TOPICS.inbox, TOPICS.attempts):
            times = [[appended_ms(one) for one in records_of(log, topic, FORK)] for log in (source, target)]
            assert times[0] == times[1] != []
    alone = only_what_was_pulled(tmp_path, TRAJECTORY, FORK)
    assert (await replayed(alone, alone.setup(Other()))).clean


async def test_pulled_again_only_what_is_new_is_added(tmp_path: Path) -> None:
    world, model = new_world(""), ScriptedModel(asks(("c1", "readonly")), says(LONG), says("end"))
    world.die_at_point = "after the effect"
    assert await world.crash(model)
    world.die_at_point = None
    with opened(tmp_path) as target:
        first = pulled(world, target, tmp_path)
        assert (first.records_held, first.blobs.held) == (0, 0)
        again = pulled(world, target, tmp_path)
        assert (again.records_new, again.blobs.new) == (0, 0)
        assert (again.records_held, again.blobs.held) == (first.records_new, first.blobs.new)

        await world.run(model)
        await said(world, "thanks", 0)
        more = pulled(world, target, tmp_path)

        assert more.records_held == first.records_new
        assert more.records_new > 1
        assert more.blobs.new == 2, "the long reply, and the result that it is"
        assert read_accepted(target, TRAJECTORY) == world.events()


async def test_a_checkpoint_comes_with_its_files_and_memory(tmp_path: Path) -> None:
    """Given a run killed in its last turn, its store and its machine lost, when resumed from what was pulled."""
    world, model = World("", open_blobs(str(tmp_path / "lost"))), notes_script()
    world.from_checkpoint = True
    world.die_at_append = 24
    assert await world.crash(model, **settings(world, tmp_path / "one"))
    with opened(tmp_path) as target:
        assert pulled(world, target, tmp_path).whole
    shutil.rmtree(tmp_path / "lost")
    shutil.rmtree(tmp_path / "one")

    alone = only_what_was_pulled(tmp_path, TRAJECTORY)
    alone.from_checkpoint = True
    before = len(alone.bodies(CheckpointTaken))
    assert before >= 2
    await alone.run(model, **settings(alone, tmp_path / "two"))

    assert alone.notes == ()
    assert (tmp_path / "two" / "notes").read_text() == NOTES


async def test_a_pull_that_was_interrupted_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = new_world("")
    await world.run(ScriptedModel(asks(("c1", "readonly")), says("end")))
    with opened(tmp_path) as target, monkeypatch.context() as patched:
        left = 4
        append = target.append

        def dying(*record: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            append(*record)  # type: ignore[arg-type]

        patched.setattr(target, "append", dying)
        with pytest.raises(KeyboardInterrupt):
            pulled(world, target, tmp_path)
    with opened(tmp_path) as target:
        found = pulled(world, target, tmp_path)

        assert found.records_held == 4
        assert read_accepted(target, TRAJECTORY) == world.events()


async def test_a_blob_that_is_missing_or_altered_is_named_and_the_rest_is_brought(tmp_path: Path) -> None:
    world = new_world("")
    world.blobs = open_blobs(str(tmp_path / "source"))
    await world.run(ScriptedModel(says(LONG)), prompt="be brief")
    (replied,) = world.bodies(ModelReplied)
    prompt, reply = hashlib.sha256(b"be brief").hexdigest(), replied.reply.hash.hex()
    (tmp_path / "source" / world.blobs.ref(prompt)).unlink()
    altered = tmp_path / "source" / world.blobs.ref(reply)
    altered.chmod(0o644)
    altered.write_bytes(b"other")

    with opened(tmp_path / "there") as target:
        found = pulled(world, target, tmp_path / "there")

        assert {(one.hash, one.named_by) for one in found.blobs.lost} == {
            (prompt, f"{TRAJECTORY}, event 1 (TaskStarted)"),
            (reply, f"{TRAJECTORY}, event 4 (ModelReplied)"),
        }
        assert not found.whole
        assert read_accepted(target, TRAJECTORY) == world.events()
        assert found.blobs.new == 2, "the tools and the result"


def test_a_faulty_trajectory_is_brought_as_it_is_and_said_to_be(tmp_path: Path) -> None:
    world, chain = new_world(""), run_of("bad")
    append_all(world.new_log(), TOPICS.events, flipped(chain.records, 6))

    with opened(tmp_path) as target:
        found = pulled(world, target, tmp_path, "bad")

        assert found.faults["bad"][0].seq == 6
        assert not found.whole
        assert len(list(records_of(target, TOPICS.events, "bad"))) == len(chain.records)


async def test_nothing_is_mixed_with_what_was_not_pulled_from_here(tmp_path: Path) -> None:
    """Another log's records, own records, another history of the same trajectory, the log itself."""
    world, other = new_world(""), new_world("")
    other.store = MemoryStore("other")
    make_topics(other.new_log(), TOPICS.prefix, 2)
    for one in (world, other):
        await one.run(ScriptedModel(says("end")))
    with opened(tmp_path) as target:
        pulled(world, target, tmp_path)
        with pytest.raises(InputError, match="what was pulled from another log"):
            pulled(other, target, tmp_path)
        append_all(target, TOPICS.events, run_of(TRAJECTORY).records[:1])
        with pytest.raises(InputError, match="trip-1 has records in"):
            pulled(world, target, tmp_path)
    with opened(tmp_path / "own") as own:
        make_topics(own, TOPICS.prefix, 2)
        with pytest.raises(InputError, match="records of its own"):
            pulled(world, own, tmp_path)
    with pytest.raises(InputError, match="is the log that is pulled from"):
        pulled(world, MemoryLog(world.store, now_ms=lambda: 0), tmp_path)


async def test_what_is_not_there_is_named(service: tuple[Ledger, str], tmp_path: Path) -> None:
    """Given a fork that was brought without its origin."""
    world = await origin_of(service[1])
    await run_fork(world, Other())
    orphaned = new_world("")
    bring(world.new_log(), orphaned, FORK)
    with opened(tmp_path) as target:
        with pytest.raises(InputError, match="no trajectory 'nobody'"):
            pulled(world, target, tmp_path, "nobody")
        with pytest.raises(InputError, match="no trajectory 'trip-1'") as error:
            pulled(orphaned, target, tmp_path, FORK)
    assert error.value.hint == "'trip-1b' was forked from it"
