"""Blobs from one store to another, with those that they name: each checked against its hash."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, NamedTuple

from tracklog.consumers.blob_names import NAMES_OTHERS, blobs_of_blob
from tracklog.infra.blobs import BlobStore
from tracklog.schemas.errors import BlobAltered, BlobMissing

__all__ = ["BlobName", "CopiedBlobs", "LostBlob", "Progress", "copy_blobs"]

FETCHERS: Final = 8
"""Blobs copied side by side."""

Progress = Callable[[str, int | None], AbstractContextManager[Callable[[int], None]]]
"""(what, how many) -> told of how many more were done."""


class BlobName(NamedTuple):
    """A blob that is wanted. `named_by`: the record that it belongs to, for messages."""

    hash: str
    media_type: str
    named_by: str


class LostBlob(NamedTuple):
    """One that could not be copied, and why."""

    hash: str
    named_by: str
    problem: str


class CopiedBlobs(NamedTuple):
    new: int
    held: int
    lost: tuple[LostBlob, ...]


class _Copied(NamedTuple):
    problem: str = ""
    new: bool = False
    names: tuple[BlobName, ...] = ()


def copy_blobs(
    names: Iterable[BlobName], source: BlobStore, target: BlobStore, progress: Progress, *, fetchers: int = FETCHERS
) -> CopiedBlobs:
    """Copies what the target does not have. Raises BlobError when one of the stores cannot be used.

    Each of the `fetchers` holds one blob in memory, which may have 64 MiB.
    """
    seen: set[str] = set()
    new = held = 0
    lost: list[LostBlob] = []
    copy = partial(_copy, source, target)
    with progress("bringing blobs", None) as advance, ThreadPoolExecutor(fetchers) as pool:
        wanted = _unseen(names, seen)
        while wanted:
            further: list[BlobName] = []
            for name, copied in zip(wanted, pool.map(copy, wanted), strict=True):
                advance(1)
                new, held = new + copied.new, held + (not copied.new and not copied.problem)
                further += copied.names
                if copied.problem:
                    lost.append(LostBlob(name.hash, name.named_by, copied.problem))
            wanted = _unseen(further, seen)
    return CopiedBlobs(new, held, tuple(lost))


def _unseen(names: Iterable[BlobName], seen: set[str]) -> list[BlobName]:
    found = []
    for name in names:
        if name.hash not in seen:
            seen.add(name.hash)
            found.append(name)
    return found


def _copy(source: BlobStore, target: BlobStore, name: BlobName) -> _Copied:
    """One that names others is read also when it is there: an interrupted copy may have left them out."""
    there = target.has(name.hash)
    if there and name.media_type not in NAMES_OTHERS:
        return _Copied()
    try:
        data = (target if there else source).get(name.hash)
        names = tuple(BlobName(*one, name.named_by) for one in blobs_of_blob(name.media_type, data))
    except (BlobMissing, BlobAltered) as error:
        return _Copied(problem=error.message)
    if not there:
        target.put(data, media_type=name.media_type)
    return _Copied(new=not there, names=names)
