"""Exporting to a disk that is full or cannot be written: named; when it is well again, every record is there once."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.exporting import Exporting, exporting_on, runs
from tracklog.schemas.errors import ColdRefused, TracklogError

pytestmark = pytest.mark.faults


class Disk:
    """A file system of its own, at first of 64 KiB."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def become(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True)
    if made.returncode != 0:
        pytest.skip("a small file system needs the right to mount one")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def refusal(world: Exporting) -> TracklogError:
    """Why an exporter did not get to the end: raised by a commit on the way, or kept of the last one."""
    try:
        kept = world.drain().exporter.unflushed
    except ColdRefused as error:
        return error
    assert isinstance(kept, ColdRefused)
    return kept


def test_a_full_disk_is_named_and_with_room_again_every_record_is_there_once(disk: Disk, tmp_path: Path) -> None:
    cold = {"url": str(disk.folder / "cold"), "rows_max": 200}
    with exporting_on(f"sqlite:{tmp_path / 'log.db'}", "tracklog", tmp_path, cold=cold) as world:
        world.fill(*runs(4, turns=60))

        assert "the disk is full" in refusal(world).hint

        disk.become("size=64m")
        world.drain()

        assert world.exported() == world.expected()


def test_a_disk_that_turned_read_only_is_named_and_nothing_is_lost(disk: Disk, tmp_path: Path) -> None:
    disk.become("size=64m")
    with exporting_on(
        f"sqlite:{tmp_path / 'log.db'}", "tracklog", tmp_path, cold={"url": str(disk.folder / "cold")}
    ) as world:
        world.fill(*runs(4))
        world.drain()
        world.fill(*runs(4, tenant="late"))
        disk.become("ro")

        assert "not allowed" in refusal(world).hint

        disk.become("rw")
        world.drain()

        assert world.exported() == world.expected()
