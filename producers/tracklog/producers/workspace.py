"""The workspace of a trajectory: its files, as they are and as they were at a checkpoint (DESIGN §7).

The directory belongs to its trajectory alone: a marker in it says so, and a restore removes what the snapshot does
not have. So a directory with files in it that is not this trajectory's is never restored into.

    snapshot     every file's content to the blob store, by its hash; then a manifest, by its hash: the whole tree,
                 or what changed since the last one
    restore      what is not as it was is made so; then the tree is read again, and its hash must be the manifest's
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tracklog.infra.blobs import BlobStore, hash_of
from tracklog.infra.clock import Clock
from tracklog.producers.workspace_files import MARKER, Files, workspace_error
from tracklog.producers.workspace_tree import (
    Kind,
    Manifest,
    Tree,
    changes,
    check_tree,
    dump_delta,
    dump_full,
    load_manifest,
    tree_hash,
)
from tracklog.schemas.errors import BlobAltered, WorkspaceError
from tracklog.schemas.values import BlobRef, SnapshotKind

__all__ = ["MEDIA_TYPE", "Snapshot", "Workspace", "load_tree"]

CHAIN_MAX: Final = 32
"""Manifests in a row that say only what changed: so many blobs are read to restore, and a whole one is written
once in so many."""
MEDIA_TYPE: Final = "application/x-tracklog-workspace"
_FETCHERS: Final = 8


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A tree that is durable. `changed`: it is another one than the last. `left_out`: what has no content in it."""

    ref: BlobRef
    kind: SnapshotKind
    tree_hash: str
    changed: bool
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Last:
    """The manifest that the next one may build on."""

    ref: BlobRef
    tree: Tree
    tree_hash: str
    chain: int


class Workspace:
    """One directory of one trajectory. Its methods block, and are called one at a time."""

    def __init__(self, root: Path, trajectory_id: str, blobs: BlobStore, clock: Clock) -> None:
        self.root: Final = root.absolute()
        self._trajectory_id = trajectory_id
        self._blobs = blobs
        self._clock = clock
        self._files = Files(self.root)
        self._last: _Last | None = None

    def open(self, *, first: bool) -> None:
        """Makes the directory this trajectory's. `first`: what is in it is its beginning.

        Raises WorkspaceError for one that cannot be written or is another trajectory's, and for one that has files
        and is nobody's, unless it is the first time.
        """
        self._check_apart()
        marker = self.root / MARKER
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(marker):
                return self._check_mine(marker)
            if not first and any(self.root.iterdir()):
                raise WorkspaceError(
                    f"{self.root} has files in it and is not the workspace of trajectory {self._trajectory_id!r}",
                    hint="restoring would remove them: give the session an empty directory, or its own",
                )
            marker.write_bytes(self._trajectory_id.encode())
        except OSError as error:
            raise workspace_error("write", self.root, error) from error

    def snapshot(self) -> Snapshot:
        """The files as they are now, durable when this returns. Raises WorkspaceError, BlobError."""
        found = self._files.read(self._blobs.put, now_us=self._clock.now_us())
        unread = tuple(path for path, entry in found.tree.items() if entry.kind is Kind.UNREADABLE)
        left_out, digest, last = (*found.skipped, *unread), tree_hash(found.tree), self._last
        if last is not None and last.tree_hash == digest:
            return Snapshot(last.ref, _kind(last.chain), digest, False, left_out)
        changed = None if last is None or last.chain >= CHAIN_MAX else changes(last.tree, found.tree)
        if last is None or changed is None or 2 * len(changed.put) >= len(found.tree):
            data, chain = dump_full(found.tree), 0
        else:
            data, chain = dump_delta(found.tree, last.ref.hash.hex(), changed), last.chain + 1
        ref = self._put(data)
        self._last = _Last(ref, found.tree, digest, chain)
        return Snapshot(ref, _kind(chain), digest, True, left_out)

    def restore(self, ref: BlobRef) -> tuple[str, ...]:
        """Makes the files what they were, and checks it. Returns what could not be: it was unreadable then.

        Raises BlobMissing or BlobAltered (the files are then in no known state: restore another snapshot), BlobError,
        and WorkspaceError.
        """
        tree, chain = load_tree(self._blobs, ref)
        self._check_there(tree)
        now_us = self._clock.now_us()
        self._last = None
        try:
            missing = self._files.write(tree, self._blobs.get, now_us=now_us)
        except BaseException:
            self._files.forget()  # what was read then was not stored
            raise
        wanted = {path: entry for path, entry in tree.items() if path not in missing}
        have = self._files.read(hash_of, now_us=now_us).tree
        if tree_hash(have) != tree_hash(wanted):
            differs = next(p for p in sorted({*have, *wanted}) if _seen(have, p) != _seen(wanted, p))
            raise WorkspaceError(
                f"workspace {self.root} is not what it was after it was restored: {differs!r} differs",
                hint="does something else write there, or does the file system lose modes or links?",
            )
        self._last = _Last(ref, tree, tree_hash(tree), chain)
        return missing

    def _check_there(self, tree: Tree) -> None:
        """Before anything is touched: a blob that is not there is found here, not half way. Raises BlobMissing."""
        wanted = {digest for entry in tree.values() if entry.kind is Kind.FILE for digest in entry.contents}
        with ThreadPoolExecutor(_FETCHERS) as pool:
            for digest, there in zip(wanted, pool.map(self._blobs.has, wanted), strict=True):
                if not there:
                    self._blobs.get(digest)

    def _put(self, data: bytes) -> BlobRef:
        digest = self._blobs.put(data, media_type=MEDIA_TYPE)
        return BlobRef(hash=bytes.fromhex(digest), size_bytes=len(data), media_type=MEDIA_TYPE)

    def _check_mine(self, marker: Path) -> None:
        """Also writes the marker again: that shows whether the directory can be written."""
        owner = marker.read_bytes().decode("utf-8", "replace")
        if owner != self._trajectory_id:
            raise WorkspaceError(
                f"{self.root} is the workspace of trajectory {owner!r}, not of {self._trajectory_id!r}",
                hint="give every trajectory a directory of its own",
            )
        again = marker.with_name(f"{MARKER}.new")
        again.write_bytes(self._trajectory_id.encode())
        os.replace(again, marker)

    def _check_apart(self) -> None:
        """The blob store must not lie in what it keeps."""
        url = self._blobs.url
        if "://" in url and not url.startswith("file://"):
            return
        place = Path(unquote(urlsplit(url).path) if url.startswith("file://") else url).absolute()
        if place.resolve().is_relative_to(self.root.resolve()):
            raise WorkspaceError(
                f"the blob store {place} lies inside of workspace {self.root}",
                hint="give the session a directory of its own, beside the store",
            )


def load_tree(blobs: BlobStore, ref: BlobRef) -> tuple[Tree, int]:
    """(what a snapshot has at which path, how many manifests it builds on). Raises BlobMissing, BlobAltered."""
    manifests: list[Manifest] = []
    digest: str | None = ref.hash.hex()
    while digest is not None:
        if len(manifests) > CHAIN_MAX:
            raise BlobAltered(f"the manifest {ref.hash.hex()} of a workspace builds on more than {CHAIN_MAX}")
        manifests.append(load_manifest(blobs.get(digest)))
        digest = manifests[-1].base
    tree = dict(manifests[-1].put)
    for manifest in reversed(manifests[:-1]):
        for path in manifest.gone:
            tree.pop(path, None)
        tree.update(manifest.put)
    tree = dict(sorted(tree.items()))
    check_tree(tree, manifests[0].tree_hash)
    return tree, len(manifests) - 1


def _kind(chain: int) -> SnapshotKind:
    return SnapshotKind.DELTA if chain else SnapshotKind.FULL


def _seen(tree: Tree, path: str) -> tuple[str, int, str] | None:
    return tree[path].seen if path in tree else None
