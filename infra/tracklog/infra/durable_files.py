"""Files and folders that survive a power cut: synced by hand, since no object-store library syncs a local disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["make_durable_directory", "sync_directory", "sync_file", "write_durably"]


def write_durably(path: Path, data: bytes) -> None:
    """A reader sees all of the bytes or no file; a crash may leave a `.put-*` file, never half of one.

    The name itself is durable only after `sync_directory`.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".put-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o444)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def make_durable_directory(path: Path) -> None:
    """Creates what is missing of the path and syncs each parent, else a power cut could lose the folder."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        sync_directory(one.parent)


def sync_directory(path: Path) -> None:
    _sync(path)


def sync_file(path: Path) -> bool:
    """Syncs what somebody else wrote; False when there is no such file."""
    try:
        _sync(path)
    except FileNotFoundError:
        return False
    return True


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
