"""The front door of library mode: a session needs no more than settings, and those of a laptop need nothing at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tracklog.producers
from tests.support.writing import read_accepted
from tracklog.infra.log.open import open_log
from tracklog.infra.settings import load_settings
from tracklog.producers import Connection, Setup, ToolSet, connected, durable, tool
from tracklog.schemas.errors import InputError, ToolOutsideSession
from tracklog.schemas.events import TaskEnded

LONG = "x" * 100_000


def names(url: str, trajectory_id: str) -> list[str]:
    log = open_log(url)
    found = [event.name for event in read_accepted(log, trajectory_id)]
    log.close()
    return found


async def test_in_an_empty_folder_a_session_is_opened_left_with_an_error_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    setup = Setup("traveller", LONG)

    drawn = []

    async def run(divisor: int) -> None:
        async with durable("trip-1", setup) as session:
            drawn.append(await session.uuid())
            await session.end(1 // divisor)

    with pytest.raises(ZeroDivisionError):
        await run(0)
    await run(1)

    assert drawn[0] == drawn[1]
    assert names("sqlite:.tracklog/log.db", "trip-1").count("TaskEnded") == 1
    assert (tmp_path / ".tracklog" / "blobs").is_dir(), "where a long task goes"


async def test_the_settings_of_the_process_say_where_it_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKLOG_LOG", f"sqlite:{tmp_path / 'elsewhere.db'}")
    (tmp_path / "tracklog.toml").write_text('tenant = "acme"\n')

    async with durable("trip-1", Setup("traveller", "a trip")) as session:
        await session.end()

    log = open_log(f"sqlite:{tmp_path / 'elsewhere.db'}")
    (ended,) = (one for one in read_accepted(log, "trip-1") if isinstance(one.body, TaskEnded))
    log.close()
    assert ended.envelope.tenant == "acme"


async def test_many_sessions_share_one_connection(tmp_path: Path) -> None:
    settings = load_settings(environ={"TRACKLOG_HOME": str(tmp_path)}, cwd=tmp_path)

    async def run(here: Connection, trajectory_id: str) -> None:
        async with durable(trajectory_id, Setup("traveller", LONG), at=here) as session:
            await session.end(trajectory_id)

    async with connected(settings) as here:
        for number in range(3):
            await run(here, f"trip-{number}")
        assert here.completed(Setup("a", "b")).store is here.blobs

    assert all("TaskEnded" in names(settings.log.url, f"trip-{number}") for number in range(3))


def test_a_setup_that_nobody_gave_a_store_says_so() -> None:
    with pytest.raises(InputError, match="no blob store"):
        _ = Setup("traveller", "a trip").store


async def test_a_tool_that_is_called_without_a_session_raises() -> None:
    @tool
    def book(flight: str) -> str:
        raise AssertionError("not reached")

    assert ToolSet.of(book).names == ("book",)
    with pytest.raises(ToolOutsideSession, match="book"):
        book("TL100")


def test_every_name_of_the_front_door_is_there_and_is_no_module() -> None:
    """A submodule of the name of an export would take its place as soon as somebody imported it."""
    (folder,) = tracklog.producers.__path__
    modules = {path.stem for path in Path(folder).iterdir()}

    assert set(tracklog.producers.__all__) & modules == set()
    assert [name for name in tracklog.producers.__all__ if not hasattr(tracklog.producers, name)] == []
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = tracklog.producers.nothing_of_the_kind


def test_the_front_door_imports_nothing_that_is_not_asked_for() -> None:
    program = f"import sys; sys.path[:0] = {sys.path!r}; import tracklog.producers; print(len(sys.modules))"
    bare = "import sys, typing, importlib; print(len(sys.modules))"

    counts = [
        int(subprocess.run([sys.executable, "-c", one], capture_output=True, text=True, check=True).stdout)
        for one in (program, bare)
    ]

    assert counts[0] - counts[1] < 10
