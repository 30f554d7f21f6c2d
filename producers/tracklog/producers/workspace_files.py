"""The files of a workspace: reading what is there, and making it what a tree says. Blocks; follows no link.

What cannot be read (a file or directory without permission) is part of the tree as such; devices, sockets and pipes
are not. A file that changes while it is read gives some mixture: what is hashed is always what is stored.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from tracklog.infra.blobs import hash_of
from tracklog.producers.workspace_tree import Entry, Kind, Tree, escaped, unescaped
from tracklog.schemas.errors import WorkspaceError

__all__ = ["MARKER", "Files", "Found", "remove_tree", "workspace_error"]

MARKER: Final = ".tracklog-workspace"
"""Lies in the root, names the trajectory whose workspace it is, and is no part of the tree."""
CHUNK_BYTES: Final = 16 * 1024 * 1024
"""Files above this are stored in parts: a part is held in memory whole."""
READERS: Final = 8
"""Files read and stored at once: a durable write waits for the disk, not for the processor."""
SETTLED_US: Final = 2_000_000
"""A file whose last change is younger than this is read again next time: a change within one tick of the file
system's clock would not show in its times."""

Store = Callable[[bytes], str]
"""Keeps a part of a file and gives its hash."""
Fetch = Callable[[str], bytes]
Times = tuple[int, int, int, int, int]


class Found(NamedTuple):
    """What is there. `skipped`: devices, sockets, pipes."""

    tree: Tree
    skipped: tuple[str, ...]


class Files:
    """Of one root. Remembers what it read, so that an unchanged file is not read again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known: dict[str, tuple[Times, Entry]] = {}

    def forget(self) -> None:
        """Reads everything again next time."""
        self._known = {}

    def read(self, store: Store, *, now_us: int) -> Found:
        """What lies under the root; the content of what is new or changed is handed to `store`.

        `now_us`: the time before reading begins, in microseconds since 1970 UTC.
        """
        tree: dict[str, Entry] = {}
        skipped: list[str] = []
        files: list[tuple[str, os.stat_result]] = []
        try:
            for path, status in self._walk(tree):
                if stat.S_ISREG(status.st_mode):
                    files.append((path, status))
                elif not stat.S_ISDIR(status.st_mode) and not stat.S_ISLNK(status.st_mode):
                    skipped.append(path)
            with ThreadPoolExecutor(READERS) as pool:
                entries = list(pool.map(lambda one: self._file(one[0], one[1], store), files))
        except OSError as error:
            raise workspace_error("read", self.root, error) from error
        tree.update((path, entry) for (path, _), entry in zip(files, entries, strict=True) if entry is not None)
        self._known = {
            path: (_times(status), tree[path])
            for path, status in files
            if path in tree and status.st_ctime_ns // 1000 < now_us - SETTLED_US
        }
        return Found(dict(sorted(tree.items())), tuple(sorted(skipped)))

    def write(self, wanted: Tree, fetch: Fetch, *, now_us: int) -> tuple[str, ...]:
        """Makes what is there what the tree says; returns what it could not: what was unreadable and is gone.

        Errors of `fetch` pass through and leave the root half done; do it again then.
        """
        try:
            self._open_directories()
            have = self.read(hash_of, now_us=now_us).tree
            for path in sorted(have, reverse=True):
                if path not in wanted or wanted[path].kind is not have[path].kind:
                    remove_tree(self._at(path))
            for path, entry in wanted.items():
                self._put(path, entry, have.get(path), fetch)
            for path in sorted(wanted, reverse=True):
                if wanted[path].kind is Kind.DIRECTORY:
                    os.chmod(self._at(path), wanted[path].mode)
        except OSError as error:
            raise workspace_error("write", self.root, error) from error
        return tuple(path for path, entry in wanted.items() if entry.kind is Kind.UNREADABLE and path not in have)

    def _walk(self, tree: dict[str, Entry]) -> Iterator[tuple[str, os.stat_result]]:
        """Everything under the root; what is no file goes into the tree."""
        waiting = [""]
        while waiting:
            parent = waiting.pop()
            for name in self._names(parent, tree):
                path = escaped(name) if not parent else f"{parent}/{escaped(name)}"
                try:
                    status = os.lstat(self._at(path))
                    if stat.S_ISLNK(status.st_mode):
                        tree[path] = Entry(Kind.LINK, 0, escaped(os.readlink(self._at(path))))
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    tree[path] = Entry(Kind.DIRECTORY, stat.S_IMODE(status.st_mode))
                    waiting.append(path)
                yield path, status

    def _names(self, path: str, tree: dict[str, Entry]) -> list[str]:
        try:
            names = os.listdir(self._at(path))
        except PermissionError:
            if not path:
                raise
            tree[path] = Entry(Kind.UNREADABLE, tree[path].mode)
            return []
        except (FileNotFoundError, NotADirectoryError):
            if not path:
                raise
            tree.pop(path, None)
            return []
        return [name for name in names if path or name != MARKER]

    def _file(self, path: str, status: os.stat_result, store: Store) -> Entry | None:
        known = self._known.get(path)
        if known is not None and known[0] == _times(status):
            return known[1]
        mode = stat.S_IMODE(status.st_mode)
        try:
            with open(self._at(path), "rb") as file:
                return _stored(file.read, mode, store)
        except PermissionError:
            return Entry(Kind.UNREADABLE, mode)
        except FileNotFoundError:
            return None

    def _put(self, path: str, entry: Entry, have: Entry | None, fetch: Fetch) -> None:
        at = self._at(path)
        if entry.kind is Kind.UNREADABLE:
            return
        same = have is not None and have.kind is entry.kind and have.value == entry.value
        if entry.kind is Kind.DIRECTORY:
            if not same:
                _make_way(at)
                at.mkdir(mode=0o700)
        elif entry.kind is Kind.LINK:
            if not same:
                _make_way(at)
                os.symlink(unescaped(entry.value), at)
        elif not same:
            _write(at, entry, fetch)
        elif have is not None and have.mode != entry.mode:
            os.chmod(at, entry.mode)

    def _open_directories(self) -> None:
        """Lets the owner write in every directory that can be read; `write` sets the modes at its end."""
        waiting = [self.root]
        while waiting:
            at = waiting.pop()
            mode = stat.S_IMODE(os.lstat(at).st_mode)
            if mode & 0o700 == 0o500:
                os.chmod(at, mode | 0o200)
            try:
                with os.scandir(at) as found:
                    waiting += [Path(one.path) for one in found if one.is_dir(follow_symlinks=False)]
            except PermissionError:
                if at == self.root:
                    raise

    def _at(self, path: str) -> Path:
        return self.root / unescaped(path) if path else self.root


def workspace_error(verb: str, root: Path, error: OSError) -> WorkspaceError:
    """The error for what the operating system refused."""
    at = error.filename if isinstance(error.filename, str) else str(root)
    return WorkspaceError(
        f"cannot {verb} workspace {root}: {at}: {error.strerror or error}",
        hint="give the session a directory that this process may read and write, with room on its disk",
    )


def _stored(read: Callable[[int], bytes], mode: int, store: Store) -> Entry:
    whole, size = hashlib.sha256(), 0
    chunks: list[str] = []
    while True:
        part = read(CHUNK_BYTES)
        if not part and chunks:
            break
        whole.update(part)
        size += len(part)
        chunks.append(store(part))
        if len(part) < CHUNK_BYTES:
            break
    return Entry(Kind.FILE, mode, whole.hexdigest(), size, tuple(chunks) if len(chunks) > 1 else ())


def _write(at: Path, entry: Entry, fetch: Fetch) -> None:
    """The whole file or none: what a killed restore leaves behind is no part of the tree, so the next removes it."""
    part = at.with_name(f".tracklog-{entry.value[:16]}")
    part.unlink(missing_ok=True)
    with part.open("xb") as file:
        for digest in entry.chunks or (entry.value,):
            file.write(fetch(digest))
    os.chmod(part, entry.mode)
    if at.is_dir() and not at.is_symlink():
        remove_tree(at)
    os.replace(part, at)


def _make_way(at: Path) -> None:
    if os.path.lexists(at):
        remove_tree(at)


def remove_tree(at: Path) -> None:
    """Removes a file, a link, or a directory with all that is in it, whatever its modes. Raises OSError."""
    if not at.is_dir() or at.is_symlink():
        at.unlink(missing_ok=True)
        return
    for folder, names, _ in os.walk(at, onerror=_raise):
        for name in names:
            if not os.path.islink(inside := os.path.join(folder, name)):
                os.chmod(inside, 0o700)
    shutil.rmtree(at)


def _raise(error: OSError) -> None:
    raise error


def _times(status: os.stat_result) -> Times:
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns
