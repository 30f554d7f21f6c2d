"""Workers keep the files of their trajectories: whoever goes on has them as they were, from the last checkpoint."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.support.sessions import ScriptedModel, asks, says
from tests.support.working import Works, agent_of
from tracklog.producers.tools import CallContext, ToolSet, tool
from tracklog.producers.worker_files import WorkerFiles, has_files
from tracklog.schemas import events as ev
from tracklog.schemas.errors import WorkspaceError
from tracklog.schemas.values import Budgets, Ruling


class Notebook:
    """A tool that adds a line to a file; the third call waits until it may end."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.seen = ""

        @tool(effect="local")
        def write(what: str, context: CallContext) -> str:
            assert context.workspace is not None
            self.ran[context.call_id] += 1
            notes = context.workspace / "notes"
            self.seen = (notes.read_text() if notes.exists() else "") + f"{context.call_id}\n"
            notes.write_text(self.seen)
            if context.call_id == "c2":
                self.begun.set()
                assert self.may_end.wait(10)
            return f"{len(self.seen.splitlines())} lines"

        self.tools = ToolSet.of(write)


def opened(root: Path, name: str) -> WorkerFiles:
    files = WorkerFiles(root, name)
    files.open()
    return files


async def test_a_run_that_is_moved_goes_on_elsewhere_with_its_files_and_its_memory(tmp_path: Path) -> None:
    """Given a worker that is told to stop within a turn, when another one goes on, then it has the files as they
    were, and no call is made again."""
    works, notebook = Works(), Notebook()
    model = ScriptedModel(*(asks((f"c{n}", "write")) for n in range(5)), says("done"))
    agent = agent_of(model, notebook.tools)
    await works.client.submit("traveller", "take notes", id="trip-1")
    first, second = opened(tmp_path / "a", "one"), opened(tmp_path / "b", "two")

    async with works.worker(agent, files=first):
        await works.until(notebook.begun.is_set)
        notebook.may_end.set()
    moved = works.names("trip-1")
    first.close()
    async with works.worker(agent, files=second):
        result = await works.client.result("trip-1", wait_s=10)

    assert result.value == "done"
    assert moved[-2:] == ["CheckpointTaken", "OwnershipReleased"]
    assert works.parked("trip-1") in ("left", "moved")
    assert notebook.seen == "".join(f"c{n}\n" for n in range(5))
    assert set(notebook.ran.values()) == {1}
    assert set(model.asked.values()) == {1}
    last = [event.body for event in works.events("trip-1") if isinstance(event.body, ev.CheckpointTaken)][-1]
    assert last.workspace is not None
    assert not second.of("trip-1").exists()
    assert not (tmp_path / "a" / "one").exists()


async def test_an_agent_without_local_tools_has_no_files(tmp_path: Path) -> None:
    works, agent = Works(), agent_of(ScriptedModel(says("done")))
    await works.client.submit("traveller", "say done", id="trip-1")
    async with works.worker(agent, files=opened(tmp_path, "one")):
        await works.client.result("trip-1", wait_s=10)

    assert not has_files(agent)
    assert "CheckpointTaken" not in works.names("trip-1")
    assert list((tmp_path / "one").iterdir()) == []


def test_directories_of_processes_that_are_gone_are_removed_and_of_no_others(tmp_path: Path) -> None:
    gone, living = opened(tmp_path, "gone"), opened(tmp_path, "living")
    for files in (gone, living):
        files.of("trip-1").mkdir()
    (tmp_path / "mine").mkdir()
    gone._stack.close()  # as the kernel does when a process dies

    third = opened(tmp_path, "third")

    assert sorted(at.name for at in tmp_path.iterdir() if at.is_dir()) == ["living", "mine", "third"]
    assert living.of("trip-1").is_dir()
    for files in (living, third):
        files.close()
    assert [at.name for at in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("trajectory_id", ["../up", "a/b", "..", "x" * 300, "ä" * 90])
def test_a_trajectory_has_its_directory_below_the_workers_whatever_its_id(trajectory_id: str, tmp_path: Path) -> None:
    files = opened(tmp_path, "one")
    files.of(trajectory_id).mkdir()
    assert files.of(trajectory_id).resolve().parent == (tmp_path / "one").resolve()
    files.close()


def test_a_place_that_cannot_be_written_is_said_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(WorkspaceError, match="file") as error:
        opened(tmp_path / "file" / "workspaces", "one")
    assert "checkpoints.workspaces" in error.value.hint


async def test_budgets_of_a_task_hold_beside_those_of_the_policy() -> None:
    @tool(effect="readonly")
    def look(what: str) -> str:
        return "there"

    works = Works()
    model = ScriptedModel(asks(("c1", "look"), ("c2", "look")), says("done"))
    await works.client.submit("traveller", "look twice", id="trip-1", budgets=Budgets(tool_calls=1))
    async with works.worker(agent_of(model, ToolSet.of(look))):
        await works.client.result("trip-1", wait_s=10)

    rulings = [event.body.ruling for event in works.events("trip-1") if isinstance(event.body, ev.Authorized)]
    assert sorted(rulings) == [Ruling.ALLOW, Ruling.DENY]
    started = next(event.body for event in works.events("trip-1") if isinstance(event.body, ev.TaskStarted))
    assert started.budgets == Budgets(tool_calls=1)
