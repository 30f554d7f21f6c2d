"""Blobs in a local directory. obstore's local store never calls fsync, so files are written by hand."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tracklog.infra.durable_files import make_durable_directory, sync_directory, write_durably
from tracklog.schemas.errors import BlobError


class BlobDirectory:
    """Files under one root, each written whole and synced before it has its name."""

    def __init__(self, root: Path, *, what: str = "blob", setting: str = "TRACKLOG_BLOBS") -> None:
        """`what` and `setting` are the words of its errors."""
        self._root = root
        self._what = what
        self._setting = setting

    def read(self, key: str, bytes_max: int) -> bytes | None:
        path = self._root / key
        try:
            with path.open("rb") as file:
                return file.read(bytes_max + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error("read", path, error) from error

    def write(self, key: str, data: bytes, media_type: str) -> None:
        path = self._root / key
        try:
            make_durable_directory(path.parent)
            if not (_holds(path, data) and _made_young(path)):
                write_durably(path, data)
            # Also when it was there: whoever wrote it may not have come to this line yet.
            sync_directory(path.parent)
        except OSError as error:
            raise self._error("write", path, error) from error

    def has(self, key: str) -> bool:
        path = self._root / key
        try:
            return path.is_file()
        except OSError as error:
            raise self._error("read", path, error) from error

    def listed(self, folder: str) -> Iterator[tuple[str, int, int]]:
        root = self._root / folder
        try:
            for path in root.glob("*/*"):
                found = _stat(path)
                if found is not None and not path.name.startswith("."):
                    yield f"{folder}/{path.parent.name}/{path.name}", found.st_size, found.st_mtime_ns // 1000
        except OSError as error:
            raise self._error("list", root, error) from error

    def move(self, key: str, to: str) -> None:
        """One step for whoever reads; the name it had is gone on the disk only after the one it has is there."""
        path, target = self._root / key, self._root / to
        try:
            make_durable_directory(target.parent)
            os.utime(path)
            os.replace(path, target)
            sync_directory(target.parent)
            sync_directory(path.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._error("move", path, error) from error

    def remove(self, key: str) -> None:
        path = self._root / key
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise self._error("remove", path, error) from error

    def _error(self, verb: str, path: Path, error: OSError) -> BlobError:
        return BlobError(
            f"cannot {verb} {self._what} {path}: {error.strerror or error}",
            hint=_DISK_HINTS.get(error.errno or 0, "").format(setting=self._setting),
        )


def _stat(path: Path) -> os.stat_result | None:
    """None for one that is gone meanwhile, and for what is no file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _made_young(path: Path) -> bool:
    """Whether the file counts as written now; False when it is somebody else's, or was just moved away."""
    try:
        os.utime(path)
    except (FileNotFoundError, PermissionError):
        return False
    return True


def _holds(path: Path, data: bytes) -> bool:
    """Whether the file has these very bytes; an altered one is written anew."""
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


_DISK_HINTS: Final[Mapping[int, str]] = {
    errno.ENOSPC: "the disk is full: free some space, nothing was lost",
    errno.EFBIG: "the disk takes no file of that size: raise the limit, nothing was lost",
    errno.EDQUOT: "the disk quota is used up: free some space, nothing was lost",
    errno.EROFS: "the file system is read-only: set {setting} to a writable directory",
    errno.EACCES: "not allowed: check the owner of the directory, or set {setting} to another",
    errno.EPERM: "not allowed: check the owner of the directory, or set {setting} to another",
    errno.ENOTDIR: "a file stands where a directory is needed: set {setting} to another",
    errno.EEXIST: "a file stands where a directory is needed: set {setting} to another",
}
