"""Checkpoints: killed anywhere, on a machine that is gone, a run goes on with its memory and its files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ledger import Ledger, ledger
from tests.support.sessions import TRAJECTORY, Crash, ScriptedModel, World, asks, built_in, kinds, says
from tracklog.infra.blobs import BlobStore, hash_of, open_blobs
from tracklog.producers.divergence import Cause, Diverged
from tracklog.producers.policy import AllowAll
from tracklog.producers.replay import replay
from tracklog.producers.session import Session
from tracklog.producers.snapshot import load_snapshot
from tracklog.producers.tools import CallContext, ToolSet, tool
from tracklog.producers.turn import run_memory
from tracklog.producers.workspace_files import MARKER
from tracklog.schemas import events as ev
from tracklog.schemas.errors import BlobMissing, PersonNeeded, WorkspaceError
from tracklog.schemas.same_work import NO_WORK
from tracklog.schemas.values import Budgets, Ruling

OFTEN = 1e9
"""Failures a day at which a checkpoint is due after every turn in which any time has passed."""


class Dying(BlobStore):
    """A blob store whose process may be gone before any of its writes."""

    def __init__(self, inner: BlobStore, world: World) -> None:
        self.inner, self.world = inner, world
        self.puts = 0
        self.die_at_put: int | None = None

    def put(self, data: bytes, *, media_type: str = "") -> str:
        if self.world.dead or self.puts == self.die_at_put:
            self.world.dead = True
            raise Crash
        self.puts += 1
        return self.inner.put(data, media_type=media_type)

    def get(self, digest: str) -> bytes:
        return self.inner.get(digest)

    def has(self, digest: str) -> bool:
        return self.inner.has(digest)

    @property
    def url(self) -> str:
        return self.inner.url


@pytest.fixture(autouse=True)
def every_opening_takes_the_shortcut(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short the record is; one that cannot, says so by reading everything."""
    monkeypatch.setattr("tracklog.producers.shortcut.RECORDS_MIN", 0)


@pytest.fixture
def service() -> Iterator[tuple[Ledger, str]]:
    with ledger() as running:
        yield running


@pytest.fixture
def world(tmp_path: Path, service: tuple[Ledger, str]) -> World:
    made = World(service[1], open_blobs(str(tmp_path / "blobs")))
    made.from_checkpoint = True
    return made


def tools(world: World) -> ToolSet:
    """Those of the world, and one that adds a line to a file of the workspace."""

    @tool(effect="local")
    def write(what: str, context: CallContext) -> str:
        assert context.workspace is not None
        world.ran[context.call_id] += 1
        world.clock.advance(1.0)
        notes = context.workspace / "notes"
        notes.write_text((notes.read_text() if notes.exists() else "") + f"{context.call_id}\n")
        world.point("before the effect")
        return f"{len(notes.read_text().splitlines())} lines"

    return ToolSet.of(*world.tools(), write)


def script() -> ScriptedModel:
    return ScriptedModel(
        asks(("c1", "write")),
        asks(("c2", "write"), ("c3", "write"), ("c4", "readonly")),
        asks(("c5", "idempotent")),
        asks(("c6", "write")),
        says("done"),
    )


NOTES = "c1\nc2\nc3\nc6\n"


def settings(world: World, root: Path, **changes: Any) -> dict[str, Any]:
    return {"tools": tools(world), "workspace": root, "failures_a_day": OFTEN, **changes}


async def test_an_undisturbed_run_takes_a_checkpoint_a_turn_and_replays_clean(world: World, tmp_path: Path) -> None:
    root = tmp_path / "work"
    model = script()
    await world.run(model, **settings(world, root))

    assert (root / "notes").read_text() == NOTES
    taken = world.bodies(ev.CheckpointTaken)
    assert len(taken) >= 3
    assert world.bodies(ev.TaskStarted)[0].workspace is not None
    last = load_snapshot(world.blobs, taken[-1].state, TRAJECTORY)
    covered = next(event for event in world.events() if event.envelope.seq == taken[-1].seq_covered)
    assert covered.hash == taken[-1].head_hash == last.state.head.hash

    setup = world.setup(None, **settings(world, tmp_path / "none"))
    assert (await replay(world.events(), built_in(setup), setup=world.setup(model, tools=tools(world)))).clean
    assert not (tmp_path / "none").exists()


def work(world: World) -> list[Any]:
    """What was done; calls side by side may be recorded in any order."""
    done = [(event.name, event.envelope.turn) for event in world.events() if not isinstance(event.body, NO_WORK)]
    outcomes = [(body.call_id, body.status, body.output.text) for body in world.bodies(ev.ToolResult)]
    return [*sorted(done), *sorted(outcomes)]


async def appends_of(world: World, root: Path) -> int:
    await world.run(script(), **settings(world, root))
    return world.appends


CUTS = 40
"""More than an undisturbed run appends: the test below says so."""


@pytest.mark.parametrize("cut", range(CUTS))
async def test_a_run_that_is_killed_anywhere_goes_on_elsewhere_with_its_files(
    cut: int, world: World, tmp_path: Path, service: tuple[Ledger, str]
) -> None:
    """Given a run killed at any append and its machine lost, when resumed elsewhere, then it is the same work."""
    calm = World(service[1], open_blobs("memory://"))
    calm.from_checkpoint = True
    appends = await appends_of(calm, tmp_path / "calm")
    assert CUTS - 8 <= appends <= CUTS
    if cut >= appends:
        return
    service[0].made.clear()
    model = script()
    world.die_at_append = cut
    assert await world.crash(model, **settings(world, tmp_path / "one"))
    shutil.rmtree(tmp_path / "one", ignore_errors=True)
    ended = bool(world.bodies(ev.TaskEnded))
    replied, asked = len(world.bodies(ev.ModelReplied)), dict(model.asked)

    world.die_at_append = None
    await world.run(model, **settings(world, tmp_path / "two"))

    assert ended or (tmp_path / "two" / "notes").read_text() == NOTES
    assert {n: model.asked[n] for n in range(replied)} == {n: asked[n] for n in range(replied)}
    assert service[0].made["c5"] == 1
    assert work(world) == work(calm)
    assert (
        await replay(world.events(), built_in(world.setup(model)), setup=world.setup(model, tools=tools(world)))
    ).clean


@pytest.mark.parametrize("cut", range(1, 12))
async def test_a_run_that_is_killed_between_a_blob_and_its_event_goes_on(
    cut: int, world: World, tmp_path: Path
) -> None:
    """Given a process that is gone at any write of a blob, when resumed elsewhere, then nothing is lost."""
    dying = Dying(world.blobs, world)
    dying.die_at_put = cut
    world.blobs = dying
    model = script()
    assert await world.crash(model, **settings(world, tmp_path / "one"))
    dying.die_at_put, world.dead = None, False
    await world.run(model, **settings(world, tmp_path / "two"))
    assert (tmp_path / "two" / "notes").read_text() == NOTES
    assert world.notes == ()
    assert (
        await replay(world.events(), built_in(world.setup(model)), setup=world.setup(model, tools=tools(world)))
    ).clean


def counting(turns: list[int], *, stop_at: int, die_at: int | None = None) -> Callable[[Session], Any]:
    """A program with a memory: each turn notes itself, and reads a step."""

    async def turn(session: Session, memory: dict[str, Any]) -> dict[str, Any]:
        number = memory["turn"]
        turns.append(number)
        if number == die_at:
            raise RuntimeError("killed")
        if number == stop_at:
            await session.end(memory["sum"])
            return memory
        await session.build_context([{"role": "user", "content": f"turn {number}"}])
        read = await session.step("read", lambda: number * 10)
        at = await session.step(f"at {number}", lambda: number)
        return {
            "turn": number + 1,
            "sum": memory["sum"] + read + at,
            "seen": [*memory["seen"], hash_of(b"%d" % number) * 32],
        }

    async def program(session: Session) -> None:
        await run_memory(session, turn, {"turn": 0, "sum": 0, "seen": []})

    return program


async def test_a_program_goes_on_from_its_memory_and_not_from_its_beginning(world: World) -> None:
    """Given a checkpoint after turn 50, when the run is left at turn 60 with an error, then turn 60 is the next."""
    turns: list[int] = []
    with pytest.raises(RuntimeError):
        await world.run(ScriptedModel(), counting(turns, stop_at=70, die_at=60))
    assert turns == list(range(61))
    assert len(world.bodies(ev.CheckpointTaken)) == 2  # after 50 turns, and when it was left

    await world.run(ScriptedModel(), counting(turns, stop_at=70))

    assert turns[61:] == list(range(60, 71))
    assert world.bodies(ev.TaskEnded)[0].result.text == str(sum(n * 11 for n in range(70)))
    occurrences = [body.occurrence for body in world.bodies(ev.Observed) if body.name == "read"]
    assert occurrences == list(range(70))
    again: list[int] = []
    assert (await replay(world.events(), counting(again, stop_at=70), setup=world.setup(ScriptedModel()))).clean
    assert again == list(range(71))


def _blob(tmp_path: Path, digest: str) -> Path:
    return tmp_path / "blobs" / "sha256" / digest[:2] / digest[2:]


def _alter(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(b"altered")


@pytest.mark.parametrize("spoil", [Path.unlink, _alter])
@pytest.mark.parametrize("spoilt", [1, 2])
async def test_a_checkpoint_that_cannot_be_read_is_left_for_an_earlier_one_and_said(
    world: World, tmp_path: Path, spoil: Callable[[Path], None], spoilt: int
) -> None:
    """Given the last checkpoint's blob lost or altered, when opened, then the one before or the whole log serves."""
    turns: list[int] = []
    with pytest.raises(RuntimeError):
        await world.run(ScriptedModel(), counting(turns, stop_at=70, die_at=60))
    for body in world.bodies(ev.CheckpointTaken)[-spoilt:]:
        spoil(_blob(tmp_path, body.state.hash.hex()))
    turns.clear()

    await world.run(ScriptedModel(), counting(turns, stop_at=70))

    assert turns == list(range(50 if spoilt == 1 else 0, 71))
    assert len(world.notes) == (1 if spoilt == 1 else 3)
    assert "cannot be read" in world.notes[0]
    assert world.bodies(ev.TaskEnded)[0].result.text == str(sum(n * 11 for n in range(70)))


async def test_memory_and_log_grow_by_what_is_new(tmp_path: Path, service: tuple[Ledger, str]) -> None:
    """Given four times the turns, each adding to the memory, then about four times the blobs: no square in it."""
    sizes = {}
    for count in (200, 800):
        place = tmp_path / str(count)
        world = World(service[1], open_blobs(str(place)))
        world.from_checkpoint = True
        await world.run(ScriptedModel(), counting([], stop_at=count))
        sizes[count] = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    assert sizes[800] < 6 * sizes[200]


async def test_files_of_finished_local_calls_are_made_again_in_order(world: World, tmp_path: Path) -> None:
    """Given no checkpoint since the start, when the machine is lost, then the local calls rebuild the files."""
    root, model = tmp_path / "one", script()
    world.from_checkpoint = False
    world.die_at_append = 23
    assert await world.crash(model, **settings(world, root, failures_a_day=0.0))
    assert {"c1", "c2", "c3"} <= {body.call_id for body in world.bodies(ev.ToolResult)}
    assert world.bodies(ev.CheckpointTaken) == []
    world.die_at_append = None
    before = dict(world.ran)

    await world.run(model, **settings(world, tmp_path / "two", failures_a_day=0.0))

    assert (tmp_path / "two" / "notes").read_text() == NOTES
    assert {name: world.ran[name] - before[name] for name in ("c1", "c2", "c3")} == {"c1": 1, "c2": 1, "c3": 1}


async def test_a_local_call_that_comes_out_otherwise_is_a_divergence_of_the_environment(
    world: World, tmp_path: Path
) -> None:
    """Given a tool that writes something else now, when its calls are made again, then the run stops."""
    root, model = tmp_path / "one", script()
    world.from_checkpoint = False
    world.die_at_append = 23
    assert await world.crash(model, **settings(world, root, failures_a_day=0.0))

    @tool(effect="local", name="write")
    def other(what: str, context: CallContext) -> str:
        return "0 lines"

    world.die_at_append = None
    changed = ToolSet.of(*world.tools(), other)
    with pytest.raises(Diverged, match=r"'1 lines'.*performed again.*'0 lines'") as found:
        await world.run(model, **settings(world, tmp_path / "two", tools=changed))
    assert found.value.divergence.cause is Cause.ENVIRONMENT
    released = world.bodies(ev.OwnershipReleased)
    assert "Diverged" in released[-1].reason


async def test_a_workspace_that_is_not_this_trajectorys_is_refused_and_left_alone(world: World, tmp_path: Path) -> None:
    root, model = tmp_path / "one", script()
    world.die_at_append = 20
    assert await world.crash(model, **settings(world, root))
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis").write_text("years")
    world.die_at_append = None
    with pytest.raises(WorkspaceError, match="has files in it"):
        await world.run(model, **settings(world, home))
    assert [path.name for path in home.iterdir()] == ["thesis"]
    await world.run(model, **settings(world, tmp_path / "two"))
    assert (tmp_path / "two" / "notes").read_text() == NOTES


async def test_lost_files_are_brought_back_from_an_earlier_checkpoint(world: World, tmp_path: Path) -> None:
    """Given content that the last checkpoint needs and that is lost, then an earlier one and its calls serve."""
    root, model = tmp_path / "one", script()
    world.die_at_append = 26
    assert await world.crash(model, **settings(world, root))
    content = (root / "notes").read_bytes()
    manifests = [body for body in world.bodies(ev.CheckpointTaken) if body.workspace is not None]
    assert len(manifests) >= 2
    _blob(tmp_path, manifests[-1].workspace.hash.hex()).unlink()
    world.die_at_append = None

    await world.run(model, **settings(world, tmp_path / "two"))

    assert (tmp_path / "two" / "notes").read_text() == NOTES
    assert content.decode() in NOTES
    assert "cannot be read" in world.notes[0]


async def test_without_any_files_to_go_back_to_opening_fails_and_says_which_blob(world: World, tmp_path: Path) -> None:
    root, model = tmp_path / "one", script()
    world.from_checkpoint = False
    world.die_at_append = 23
    assert await world.crash(model, **settings(world, root, failures_a_day=0.0))
    ref = world.bodies(ev.TaskStarted)[0].workspace
    _blob(tmp_path, ref.hash.hex()).unlink()
    world.die_at_append = None
    with pytest.raises(BlobMissing, match=ref.hash.hex()):
        await world.run(model, **settings(world, tmp_path / "two"))


async def test_files_are_safe_before_an_opaque_call_and_after_it(world: World, tmp_path: Path) -> None:
    """Given an opaque call that is killed, when a person is asked, then a checkpoint stands before its intent."""
    world.from_checkpoint = False
    model = ScriptedModel(asks(("c1", "write")), asks(("c2", "opaque")), says("done"))
    world.die_at_point = "after the effect"
    assert await world.crash(model, **settings(world, tmp_path / "one", failures_a_day=0.0))
    names = kinds(world.events())
    assert names[names.index("CheckpointTaken") :] == ["CheckpointTaken", "ToolIntent"]
    world.die_at_point = None
    world.clock.advance(1000.0)
    with pytest.raises(PersonNeeded):
        await world.run(model, **settings(world, tmp_path / "two", failures_a_day=0.0))
    assert (tmp_path / "two" / "notes").read_text() == "c1\n"


async def test_an_explicit_checkpoint_is_taken_when_live_and_only_when_something_is_new(
    world: World, tmp_path: Path
) -> None:
    root, taken = tmp_path / "work", list[bool]()

    async def program(session: Session) -> None:
        (root / "f").write_text("by the program")
        taken.append(await session.checkpoint())
        taken.append(await session.checkpoint())
        await session.end("done")

    world.from_checkpoint = False
    await world.run(ScriptedModel(), program, workspace=root)
    assert taken == [True, False]
    assert (root / MARKER).read_text() == TRAJECTORY
    assert world.blobs.has(hash_of(b"by the program"))


async def test_a_memory_that_is_not_json_is_refused(world: World) -> None:
    async def program(session: Session) -> None:
        await session.finish_turn({"when": object()})

    with pytest.raises(ValueError, match="memory of a turn is not JSON"):
        await world.run(ScriptedModel(), program)


class Frugal(AllowAll):
    """Allows everything, up to three calls and a number of tokens."""

    budgets = Budgets(tool_calls=3, tokens=1_000_000)  # type: ignore[misc]


@pytest.mark.parametrize("cut", [14, 20, 26])
async def test_a_budget_is_not_renewed_by_a_checkpoint(cut: int, world: World, tmp_path: Path) -> None:
    whole = World(world.ledger_url, open_blobs(str(tmp_path / "whole-blobs")))
    await whole.run(script(), **settings(whole, tmp_path / "whole", policy=Frugal()))
    world.die_at_append = cut
    assert await world.crash(script(), **settings(world, tmp_path / "work", policy=Frugal()))
    world.die_at_append = None

    await world.run(script(), **settings(world, tmp_path / "work", policy=Frugal()))

    allowed = [body.call_id for body in world.bodies(ev.Authorized) if body.ruling is Ruling.ALLOW]
    assert len(allowed) == 3
    assert len([body for body in whole.bodies(ev.Authorized) if body.ruling is Ruling.ALLOW]) == 3
