"""A workspace as a value: what lies at which path, one hash over all of it, and what changed since. Pure.

    kind         value                        mode
    file         SHA-256 of the content       permission bits
    dir          ""                           permission bits
    link         where it points, verbatim    0: a link has none of its own
    unreadable   ""                           permission bits: there is something, its content is not known

Paths are relative, with "/", and escaped where they are no plain text: names are bytes, and JSON is not. Times,
owners and hard links are no part of a tree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson

from tracklog.schemas.errors import BlobAltered

__all__ = ["Changes", "Entry", "Kind", "Tree", "changes", "escaped", "load_manifest", "tree_hash", "unescaped"]

VERSION: Final = 1
_ESCAPED: Final = re.compile("[%\x00-\x1f\x7f\udc80-\udcff]")
_ESCAPE: Final = re.compile(r"%([0-9A-F]{2})")


class Kind(StrEnum):
    FILE = "file"
    DIRECTORY = "dir"
    LINK = "link"
    UNREADABLE = "unreadable"


class Entry(NamedTuple):
    """What lies at a path. `chunks`: the blobs of a file that is too large for one; else its hash names its blob."""

    kind: Kind
    mode: int = 0
    value: str = ""
    size: int = 0
    chunks: tuple[str, ...] = ()

    @property
    def seen(self) -> tuple[str, int, str]:
        """What makes two entries the same."""
        return self.kind.value, self.mode, self.value

    @property
    def contents(self) -> tuple[str, ...]:
        """Of a file: the hashes of the blobs that it is, one after the other."""
        return self.chunks or (self.value,)


Tree = Mapping[str, Entry]
"""Escaped path -> what lies there; the root itself is not in it."""


class Changes(NamedTuple):
    """From one tree to the next."""

    put: Mapping[str, Entry]
    gone: tuple[str, ...]


def escaped(name: str) -> str:
    """A path as the operating system gives it (`os.fsdecode`) as plain text."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]) & 0xFF:02X}", name)


def unescaped(path: str) -> str:
    """The inverse of `escaped`."""
    return _ESCAPE.sub(lambda found: _character(int(found[1], 16)), path)


def _character(byte: int) -> str:
    return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)


def tree_hash(tree: Tree) -> str:
    """SHA-256 over every path with its kind, mode and value, in hexadecimal."""
    digest = hashlib.sha256()
    for path in sorted(tree):
        digest.update(orjson.dumps([path, *tree[path].seen]) + b"\n")
    return digest.hexdigest()


def changes(before: Tree, after: Tree) -> Changes:
    """What to do to `before` to have `after`."""
    put = {path: entry for path, entry in after.items() if before.get(path) != entry}
    return Changes(put, tuple(sorted(path for path in before if path not in after)))


def dump_full(tree: Tree) -> bytes:
    """The manifest of a whole tree; equal trees give equal bytes."""
    return _dump({"tree": tree_hash(tree), "put": _rows(tree)})


def dump_delta(tree: Tree, base: str, changed: Changes) -> bytes:
    """The manifest of a tree by what changed since another manifest, the blob `base`."""
    return _dump({"tree": tree_hash(tree), "base": base, "put": _rows(changed.put), "gone": changed.gone})


class Manifest(NamedTuple):
    """One blob of a chain. `base`: the blob that this one changes, None for a whole tree."""

    tree_hash: str
    base: str | None
    put: Mapping[str, Entry]
    gone: tuple[str, ...]

    @property
    def blobs(self) -> tuple[str, ...]:
        """The hashes of the contents that it names."""
        files = (entry for entry in self.put.values() if entry.kind is Kind.FILE)
        return tuple(digest for entry in files for digest in entry.contents)


def load_manifest(data: bytes) -> Manifest:
    """The inverse of both. Raises BlobAltered for anything else, and for a path that leads out of the tree."""
    try:
        plain = orjson.loads(data)
        if plain["version"] != VERSION:
            raise ValueError(f"version {plain['version']}")
        put = {path: _entry(row) for path, row in plain["put"].items()}
        manifest = Manifest(plain["tree"], plain.get("base"), put, tuple(plain.get("gone", ())))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BlobAltered(f"a blob is no manifest of a workspace: {error}") from error
    for path in manifest.put:
        _check_path(path)
    return manifest


def check_tree(tree: Tree, expected: str) -> None:
    """Raises BlobAltered for a tree that is not the one meant, or where something lies in what is no directory."""
    for path in tree:
        parent = path.rpartition("/")[0]
        if parent and (parent not in tree or tree[parent].kind is not Kind.DIRECTORY):
            raise BlobAltered(f"the manifest of a workspace puts {path!r} where no directory is")
    if tree_hash(tree) != expected:
        raise BlobAltered("the manifests of a workspace do not make the tree that they name")


def _check_path(path: str) -> None:
    parts = unescaped(path).split("/")
    if any(part in ("", ".", "..") or "\x00" in part for part in parts):
        raise BlobAltered(f"the manifest of a workspace names {path!r}, which is no path inside of one")


def _rows(tree: Mapping[str, Entry]) -> dict[str, list[Any]]:
    return {path: [*entry.seen, entry.size, *([entry.chunks] if entry.chunks else ())] for path, entry in tree.items()}


def _entry(row: list[Any]) -> Entry:
    kind, mode, value, size, *chunks = row
    return Entry(Kind(kind), int(mode), str(value), int(size), tuple(chunks[0]) if chunks else ())


def _dump(plain: Mapping[str, Any]) -> bytes:
    return orjson.dumps({"version": VERSION, **plain}, option=orjson.OPT_SORT_KEYS)
