"""What was said and not taken: each with its reason and its place, counted, and told with the call it was about."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.ledger import Ledger, ledger
from tests.support.sessions import TRAJECTORY, ScriptedModel, World, asks, new_world, says
from tracklog.consumers.call_story import call_story
from tracklog.consumers.cli.app import app
from tracklog.consumers.refusals import Reason, Refusal, reason_of, refusals
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.ranges import append_and_wait
from tracklog.infra.settings import load_settings
from tracklog.infra.wiring import opened_log
from tracklog.producers.post import Poster
from tracklog.schemas import events as ev
from tracklog.schemas.codec import encode_record
from tracklog.schemas.envelope import LedgerEnvelope
from tracklog.schemas.inbox import Annotation, InboxBody, Outcome, Settlement
from tracklog.schemas.ledger import Attempt
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Body, InboxId, ResultStatus, Settled, TargetKind

TOPICS = Topics()


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


def outcome(call_id: str, intent: bytes, output: str = "paid") -> Outcome:
    said, ok = Body.of(output), ResultStatus.OK
    return Outcome(call_id=call_id, intent_hash=intent, slot=1, status=ok, output=said, settled=Settled.DIRECT)


async def post(world: World, body: InboxBody, source: str, seq: int = 0, key: str = TRAJECTORY) -> int:
    poster = Poster(world.new_log(), TOPICS, clock=world.clock)
    return (await poster.post(key, body, inbox_id=InboxId(source=source, seq=seq))).offset


def found(world: World, trajectory_id: str | None = None) -> list[Refusal]:
    return list(refusals(world.new_log(), TOPICS, trajectory_id))


async def test_everything_that_was_not_taken_is_there_with_its_reason_and_its_place(
    service: tuple[Ledger, str],
) -> None:
    # given a run that is about to make its last call, and what others say to it
    world = new_world(service[1])
    world.die_at_point = "after the effect"
    model = ScriptedModel(asks(("c1", "idempotent")), says("done"))
    assert await world.crash(model)
    (intent,) = [event.hash for event in world.events() if isinstance(event.body, ev.ToolIntent)]
    places = {
        Reason.NOT_OPEN: await post(world, outcome("c1", intent), "job"),  # the call is no dispatcher's
        Reason.ALTERED: await post(world, outcome("c1", intent, "something else"), "job"),
    }
    await post(world, outcome("c1", intent), "job")
    # when it has ended, and they go on talking
    world.die_at_point = None
    await world.run(model)
    places[Reason.ENDED] = await post(world, outcome("c1", intent), "job", 7)
    await post(world, Annotation(target=TargetKind.TRAJECTORY, name="n", value=Body.of("1"), source="ada"), "ada")
    places[Reason.NO_TRAJECTORY] = await post(world, outcome("c9", intent), "job", key="nobody")
    envelope = LedgerEnvelope(
        trajectory_id=TRAJECTORY,
        tenant="default",
        call_id="c1",
        intent_hash=b"x" * 32,
        slot=1,
        nonce=b"n" * 16,
        recorded_at=0,
    )
    made = encode_record(envelope, Attempt(dispatcher="d", not_after=5))
    log = world.new_log()
    append_and_wait(log, TOPICS.attempts, TRAJECTORY.encode(), made.value, made.headers, timeout_s=5)
    append_and_wait(log, TOPICS.inbox, TRAJECTORY.encode(), b"no frame", (), timeout_s=5)
    # then each of them is told once, where it lies
    told = found(world)
    assert Counter(one.reason for one in told) == Counter((*places, Reason.NO_INTENT, Reason.UNREADABLE))
    assert {one.reason: one.offset for one in told if one.reason in places} == places
    (refused,) = [event for event in world.events() if isinstance(event.body, ev.InboxRefused)]
    assert [one.event_seq for one in told if one.reason is Reason.NOT_OPEN] == [refused.envelope.seq]
    assert {one.call_id for one in told if one.topic == "inbox" and one.kind == "Outcome"} == {"c1", "c9"}
    # and of one trajectory only its own
    assert {one.trajectory_id for one in found(world, "nobody")} == {"nobody"}
    assert len(found(world, TRAJECTORY)) == len(told) - 1
    # and the story of the call has them too
    story = call_story(world.new_log(), TOPICS, TRAJECTORY, "c1")
    verdicts = [one.verdict for one in story.chapters if one.read.name == "Outcome"]
    assert verdicts == [
        f"refused by event {refused.envelope.seq}",
        f"not taken: offset {places[Reason.NOT_OPEN]} has its identity",
        f"the same as at offset {places[Reason.NOT_OPEN]}",
        "not taken: the trajectory has ended",
    ]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("the trajectory has ended", Reason.ENDED),
        ("call c1 is not open where calls are dispatched (any more)", Reason.NOT_OPEN),
        ("call c1 does not wait for a decision (any more)", Reason.NOT_OPEN),
        ("nobody was asked about call c1", Reason.NOT_OPEN),
        ("no child run c1 is waited for (any more)", Reason.NOT_OPEN),
        ("there is no such timer", Reason.NOT_OPEN),
        ("it answers another intent than the one of call c1", Reason.OTHER_INTENT),
        ("it answers another request than the one for call c1", Reason.OTHER_INTENT),
        ("a person is asked about call c1 already", Reason.ALREADY),
        ("the trajectory goes on already", Reason.ALREADY),
        ("the edited arguments are not taken: they are too long", Reason.UNFIT),
        ("about call c1: ada may not decide", Reason.MAY_NOT),
        ("in words of a later version", Reason.OTHER),
    ],
)
def test_what_owners_say_is_counted_by_its_reason(words: str, reason: Reason) -> None:
    assert reason_of(words) is reason


def test_the_command_lists_filters_and_counts(tmp_path: Path) -> None:
    # given a log with what was said to nobody
    url = f"sqlite:{tmp_path / 'log.db'}"
    settings = load_settings(flags={"log": url}, environ={}, cwd=tmp_path)

    async def say() -> None:
        with opened_log(settings, make_topics=True) as log:
            poster = Poster(log, TOPICS, clock=SystemClock())
            for number in range(3):
                body = outcome(f"c{number}", b"i" * 32)
                await poster.post("nobody", body, inbox_id=InboxId(source="job", seq=number))
            person = Settlement(
                call_id="c1", intent_hash=b"i" * 32, by="ada", status=ResultStatus.OK, output=Body.of("")
            )
            await poster.post("no-one", person, inbox_id=InboxId(source="ada", seq=0))

    asyncio.run(say())

    def tracklog(*words: str) -> Any:
        done = CliRunner().invoke(app, ["--log", url, "refused", "--from-log", *words])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout) if "--json" in words else done.stdout

    # then all are counted, however many are listed
    listed = tracklog("--limit", "2", "--json")
    assert listed["counts"] == {"no-trajectory": 4}
    assert [one["call_id"] for one in listed["refused"]] == ["c2", "c1"]
    assert listed["refused"][0] | {"timestamp_ms": 0, "partition": 0} == {
        **{"trajectory_id": "nobody", "tenant": "default", "kind": "Outcome", "source": "job", "seq": 2},
        **{"call_id": "c2", "reason": "no-trajectory", "words": "there is no such trajectory", "topic": "inbox"},
        **{"partition": 0, "offset": 2, "event_seq": None, "event_offset": None, "timestamp_ms": 0},
    }
    assert len(tracklog("nobody", "--json")["refused"]) == 3
    assert len(tracklog("--kind", "Settlement", "--json")["refused"]) == 1
    assert len(tracklog("--call", "c1", "--json")["refused"]) == 2
    assert tracklog("--reason", "altered", "--json") == {"counts": {}, "refused": [], "source": "log"}
    assert tracklog("--until", "2001-01-01", "--json")["refused"] == []
    assert "no-trajectory: 4" in tracklog()
    assert tracklog("--tenant", "other") == "nothing was refused\n"
