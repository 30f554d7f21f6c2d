"""Where `--to-file` writes to: what is replaced, what is written to as it is, and what is refused."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from tracklog.consumers.cli.target_file import target_file
from tracklog.schemas.errors import InputError, OutputError


def write(path: Path, data: bytes, *, force: bool = False) -> None:
    with target_file(path, force=force) as file:
        file.write(data)


def test_a_device_is_written_to_and_stays_one() -> None:
    with pytest.raises(OutputError, match="No space left"):
        write(Path("/dev/full"), b"x", force=True)
    write(Path("/dev/null"), b"x")

    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_fifo_is_written_to_and_stays_one(tmp_path: Path) -> None:
    fifo, read = tmp_path / "fifo", list[bytes]()
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()), daemon=True)
    reader.start()

    write(fifo, b"through")

    reader.join(20)
    assert read == [b"through"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_a_link_stays_one_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")

    write(tmp_path / "link", b"new")
    with pytest.raises(InputError, match="exists"):
        write(tmp_path / "link", b"again")
    write(tmp_path / "link", b"forced", force=True)

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"forced"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link", "target"]


def test_a_new_file_has_the_mode_that_the_umask_leaves_and_a_replaced_one_keeps_its_own(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "new", b"x")
        (tmp_path / "old").touch(mode=0o600)
        write(tmp_path / "old", b"x", force=True)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o600


@pytest.mark.parametrize("at_once", [False, True])
def test_of_two_writers_without_force_one_is_refused(tmp_path: Path, *, at_once: bool) -> None:
    path = tmp_path / "file"
    late = target_file(path, force=False)
    late.__enter__().write(b"late")
    with target_file(path, force=False, at_once=at_once) as early:
        early.write(b"early")

    with pytest.raises(InputError, match="exists"):
        late.__exit__(None, None, None)

    assert path.read_bytes() == b"early"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_followed_is_in_the_file_as_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with target_file(path, force=False, at_once=True) as file:
        file.write(b"one\n")

        assert path.read_bytes() == b"one\n"


def test_what_ends_early_leaves_nothing_and_what_was_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with target_file(path, force=True) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        write(tmp_path, b"x", force=True)
