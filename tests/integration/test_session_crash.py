"""Killed after every append and around every effect, then resumed: an effect once, or a person is asked."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.support.ledger import Ledger, ledger
from tests.support.sessions import PAST_GRACE_S, TRAJECTORY, ScriptedModel, World, asks, new_world, says
from tracklog.infra.log.memory import Fault
from tracklog.producers.answers import Answers
from tracklog.schemas import catalog
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import PersonNeeded, UnknownSchema
from tracklog.schemas.events import Escalated, ModelReplied, TaskEnded, ToolResult
from tracklog.schemas.same_work import same_work
from tracklog.schemas.values import Effect, ResultStatus

APPENDS = 12
"""Of an undisturbed run with one call; the tests below fail when it is another number."""
POINTS = ("before the effect", "after the effect")
CALL = "c1"


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


def script(effect: Effect) -> ScriptedModel:
    return ScriptedModel(asks((CALL, effect.value)), says("done"))


_undisturbed: dict[Effect, list[Event]] = {}


async def undisturbed(effect: Effect) -> list[Event]:
    """The events of a run that nobody kills; made once."""
    if effect not in _undisturbed:
        with ledger() as (_, url):
            world = new_world(url)
            await world.run(script(effect))
        assert world.appends == APPENDS
        _undisturbed[effect] = world.events()
    return _undisturbed[effect]


async def finish(world: World, model: ScriptedModel) -> bool:
    """Resumes until the run has ended; True when a person had to be asked."""
    world.die_at_append = world.die_at_point = None
    world.clock.advance(PAST_GRACE_S)
    try:
        await world.run(model)
    except PersonNeeded:
        async with world.process() as (log, _):
            await Answers(log).settle(TRAJECTORY, CALL, person="ada", happened=True, output=f"receipt for {CALL}")
        await world.run(model)
        return True
    return False


@pytest.mark.parametrize("effect", list(Effect))
@pytest.mark.parametrize("cut", [*range(APPENDS), *POINTS])
async def test_a_run_that_is_killed_anywhere_goes_on_where_it_was(
    effect: Effect, cut: int | str, service: tuple[Ledger, str]
) -> None:
    """Given a run that is killed, when a new process resumes it, then it is the same work, or a person was asked."""
    counted, url = service
    world, model = new_world(url), script(effect)
    world.die_at_append = cut if isinstance(cut, int) else None
    world.die_at_point = cut if isinstance(cut, str) else None
    assert await world.crash(model)
    replied = len(world.bodies(ModelReplied))
    before = dict(model.asked)

    asked = await finish(world, model)

    assert {n: model.asked[n] for n in range(replied)} == {n: before[n] for n in range(replied)}
    assert counted.made[CALL] <= 1
    assert len(world.bodies(TaskEnded)) == 1
    assert len(world.bodies(ToolResult)) == 1
    assert asked == bool(world.bodies(Escalated))
    (result,) = world.bodies(ToolResult)
    assert asked <= (effect is Effect.OPAQUE)
    if effect is Effect.IDEMPOTENT or (effect is Effect.OPAQUE and not asked):
        assert counted.made[CALL] == 1
    if effect is Effect.PROBE:
        assert (result.status is ResultStatus.OK) == (counted.made[CALL] == 1)
        assert result.status in (ResultStatus.OK, ResultStatus.EXPIRED)
    if not asked and result.status is ResultStatus.OK:
        assert same_work(world.events(), await undisturbed(effect)) is None


@pytest.mark.parametrize("seed", range(20))
async def test_a_log_that_loses_and_forgets_to_report_changes_nothing(seed: int, service: tuple[Ledger, str]) -> None:
    """Given appends that are lost, or stored and reported as unknown, each effect happens once, none in doubt."""
    counted, url = service
    world, dice = new_world(url), random.Random(seed)
    world.trouble = lambda *_: dice.choice((None, None, Fault.STORE_UNKNOWN, Fault.DROP_UNKNOWN))
    await world.run(ScriptedModel(*(asks((f"c-{one.value}", one.value)) for one in Effect), says("done")))
    assert counted.made == {f"c-{one}": 1 for one in ("idempotent", "probe", "opaque")}
    assert [body.status for body in world.bodies(ToolResult)] == [ResultStatus.OK] * len(Effect)
    assert len(world.bodies(TaskEnded)) == 1


@pytest.mark.parametrize("effect", [Effect.OPAQUE, Effect.PROBE, Effect.IDEMPOTENT])
@pytest.mark.parametrize("first", [6, 7, 8, *POINTS])
@pytest.mark.parametrize("second", range(6))
async def test_a_run_that_is_killed_again_while_it_settles_makes_no_second_effect(
    effect: Effect, first: int | str, second: int, service: tuple[Ledger, str]
) -> None:
    counted, url = service
    world, model = new_world(url), script(effect)
    world.die_at_append = first if isinstance(first, int) else None
    world.die_at_point = first if isinstance(first, str) else None
    assert await world.crash(model)
    world.die_at_append, world.die_at_point = second, None
    world.clock.advance(PAST_GRACE_S)
    try:
        await world.crash(model)
    except PersonNeeded:
        assert effect is Effect.OPAQUE

    await finish(world, model)

    assert counted.made[CALL] <= 1
    assert len(world.bodies(Escalated)) <= 1
    assert len(world.bodies(TaskEnded)) == 1


@pytest.mark.parametrize("effect", list(Effect))
async def test_a_result_of_a_version_not_known_here_leaves_no_call_open_that_could_be_settled(
    effect: Effect, service: tuple[Ledger, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a run that was left when its call had a result
    counted, url = service
    world, model = new_world(url), script(effect)
    results = [at for at, event in enumerate(await undisturbed(effect)) if isinstance(event.body, ToolResult)]
    world.die_at_append = results[0] + 1
    assert await world.crash(model)
    asked, known, unread = dict(counted.asked), catalog.find, catalog.newest("ToolResult").fingerprint
    # when one goes on with it that does not know the version of the result
    monkeypatch.setattr(catalog, "find", lambda crc, stated: None if crc == unread else known(crc, stated))
    world.die_at_append = None
    world.clock.advance(PAST_GRACE_S)
    with pytest.raises(UnknownSchema, match="ToolResult of a version not known here"):
        await world.run(model)
    # then nothing was done or asked again, and the record says why it stopped
    assert dict(counted.asked) == asked
    assert [event.name for event in world.events()][-2:] == ["OwnershipClaimed", "OwnershipReleased"]
