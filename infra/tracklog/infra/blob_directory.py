"""Blobs in a local directory. obstore's local store never calls fsync, so files are written by hand."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tracklog.schemas.errors import BlobError


class BlobDirectory:
    """Files under one root, each written whole and synced before it has its name."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, key: str, bytes_max: int) -> bytes | None:
        path = self._root / key
        try:
            with path.open("rb") as file:
                return file.read(bytes_max + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _disk_error("read", path, error) from error

    def write(self, key: str, data: bytes, media_type: str) -> None:
        path = self._root / key
        try:
            _make_durable_directory(path.parent)
            if not _holds(path, data):
                _write_durably(path, data)
            # Also when it was there: whoever wrote it may not have come to this line yet.
            _sync_directory(path.parent)
        except OSError as error:
            raise _disk_error("write", path, error) from error

    def has(self, key: str) -> bool:
        path = self._root / key
        try:
            return path.is_file()
        except OSError as error:
            raise _disk_error("read", path, error) from error


def _holds(path: Path, data: bytes) -> bool:
    """Whether the file has these very bytes; an altered one is written anew."""
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def _write_durably(path: Path, data: bytes) -> None:
    """A reader sees all of the bytes or no file; a crash may leave a `.put-*` file, never half a blob."""
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


def _make_durable_directory(path: Path) -> None:
    """Creates what is missing of the path and syncs each parent, else a power cut could lose the folder."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        _sync_directory(one.parent)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_DISK_HINTS: Final[Mapping[int, str]] = {
    errno.ENOSPC: "the disk is full: free some space, nothing was lost",
    errno.EDQUOT: "the disk quota is used up: free some space, nothing was lost",
    errno.EROFS: "the file system is read-only: set TRACKLOG_BLOBS to a writable directory",
    errno.EACCES: "not allowed: check the owner of the directory, or set TRACKLOG_BLOBS to another",
    errno.EPERM: "not allowed: check the owner of the directory, or set TRACKLOG_BLOBS to another",
    errno.ENOTDIR: "a file stands where a directory is needed: set TRACKLOG_BLOBS to another",
    errno.EEXIST: "a file stands where a directory is needed: set TRACKLOG_BLOBS to another",
}


def _disk_error(verb: str, path: Path, error: OSError) -> BlobError:
    return BlobError(
        f"cannot {verb} blob {path}: {error.strerror or error}",
        hint=_DISK_HINTS.get(error.errno or 0, ""),
    )
