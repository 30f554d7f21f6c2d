"""Opening from a checkpoint skims what came before it: the same state and verdicts, few bodies read."""

from __future__ import annotations

import pytest

from tests.integration.test_session_checkpoint import counting
from tests.support.sessions import TRAJECTORY, ScriptedModel, World, new_world
from tests.support.writing import read_accepted
from tracklog.infra.log.port import Record
from tracklog.producers.shortcut import RECORDS_MIN, Shortcut, find_shortcut
from tracklog.producers.track import Track
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event, decode_event, encode_event
from tracklog.schemas.fold import fold_all
from tracklog.schemas.stamp import Stamp, trajectory_prefix
from tracklog.schemas.state import State
from tracklog.schemas.values import Driver


@pytest.fixture
async def world() -> World:
    """A run of 60 turns that was left with an error, with checkpoints after 50 turns and when it was left."""
    made = new_world("")
    made.from_checkpoint = True
    with pytest.raises(RuntimeError):
        await made.run(ScriptedModel(), counting([], stop_at=70, die_at=60))
    return made


def records(world: World) -> list[Record]:
    return read_accepted(world.new_log(), TRAJECTORY, raw=True)


def found(world: World, log: list[Record]) -> Shortcut:
    shortcut = find_shortcut(TRAJECTORY, log, world.blobs)
    assert shortcut is not None
    return shortcut


def opened(world: World, log: list[Record], *, shortcut: bool = True) -> Track:
    track = Track(State(TRAJECTORY), 64)
    track.record()
    for record in log:
        track.keep(record)
    track.open(world.blobs if shortcut else None)
    return track


def settled(state: State) -> State:
    """Without the counts of what was refused: those of a checkpoint are as of when it was taken."""
    return state._replace(harmless={}, head=state.head._replace(lost=()))


def claim(after: Record, *, epoch: int, seq: int) -> Record:
    """A claim that hangs on this record."""
    body = ev.OwnershipClaimed(owner="other", nonce=bytes(16), driver=Driver.LIBRARY)
    hangs_on = decode_event(after.key, after.value, after.headers)
    prefix = trajectory_prefix(TRAJECTORY, hangs_on.envelope.tenant)
    encoded = encode_event(Stamp(TRAJECTORY, prefix, seq, epoch, 0, 0, 0, hangs_on.hash), body)
    return after._replace(value=encoded.value, headers=encoded.headers)


async def test_the_state_is_that_of_folding_everything(world: World) -> None:
    log = records(world)
    assert len(log) > 2 * RECORDS_MIN
    short, whole = opened(world, log), opened(world, log, shortcut=False)

    assert short.state == whole.state
    assert short.shortcut is not None
    assert len(short.history()) < len(whole.history()) / 4
    assert {event.name for event, _ in whole.history()} - {event.name for event, _ in short.history()} == {
        "ContextBuilt",
        "MessageReceived",
        "Observed",
    }
    last = whole.history()[-1][0]
    assert short.accepted(last.envelope.seq, last.hash)
    short.complete()
    assert short.history() == whole.history()


async def test_what_was_refused_before_the_checkpoint_is_refused(world: World) -> None:
    """Given retries, lost claims and what hangs on them among the records, then the accepted ones are the same."""
    log = records(world)
    strays = [log[20], claim(log[10], epoch=1, seq=11), log[40], claim(log[30], epoch=0, seq=31)]
    among = [*log[:60], *strays, *log[60:120], log[100], *log[120:]]

    short = opened(world, among)

    assert short.shortcut is not None
    assert settled(short.state) == settled(opened(world, among, shortcut=False).state)


async def test_a_takeover_that_the_checkpoint_does_not_know_of_stands(world: World) -> None:
    """Given a claim accepted before a former owner wrote its checkpoint, then an earlier checkpoint is taken."""
    log = records(world)
    whole = found(world, log)
    at = next(n for n, one in enumerate(log) if ("tl-type", b"CheckpointTaken") in one.headers and n > whole.at)
    takeover = claim(log[at - 1], epoch=1, seq=at)
    among = [*log[:at], takeover, *log[at:]]

    short = opened(world, among)

    assert short.shortcut is not None
    assert short.shortcut.recall.until < whole.recall.until
    assert short.state.head.epoch == 2
    assert settled(short.state) == settled(fold_all(State(TRAJECTORY), map(_decoded, among)))


@pytest.mark.parametrize("spoil", ["tampered", "gap", "no blob"])
async def test_when_something_is_wrong_everything_is_read(world: World, spoil: str) -> None:
    log = records(world)
    if spoil == "tampered":
        value = log[50].value
        assert value is not None
        log.insert(50, log[50]._replace(value=value[:-1] + bytes([value[-1] ^ 1])))
    elif spoil == "no blob":
        world.blobs = new_world("").blobs
    else:
        log[50] = log[49]

    assert find_shortcut(TRAJECTORY, log, world.blobs) is None
    assert opened(world, log).state == fold_all(State(TRAJECTORY), map(_decoded, log))


def _decoded(record: Record) -> Event:
    return decode_event(record.key, record.value, record.headers)
