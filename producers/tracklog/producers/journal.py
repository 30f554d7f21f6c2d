"""What a session remembers over its turns, as rows that are only ever added: so that a checkpoint stores the new ones.

    row                              says
    know, hash, seq                  event `seq` holds the message with this hash
    edits, [...]                     a context was built by these edits of the one before
    proposed, call id                a reply asked for this call
    observed, kind, name             a step or a reading was made
    timer, name, turn                a timer was set
    heard, peer                      a message of the inbox was given out
    child, id                        a child run was spawned
    told                             a prompt that came into force was made known

Rows are kept in blobs of about SEALED_BYTES, which never change again; the last, unfinished one is part of the
checkpoint itself. A checkpoint so costs at most that much and 70 bytes for each blob before it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import orjson

from tracklog.schemas.errors import BlobAltered
from tracklog.schemas.values import ContextEdit, EditOp

__all__ = ["Journal", "MemoryJournal", "edited", "edits_row", "packed", "rows_of", "unpacked"]

SEALED_BYTES: Final = 64 * 1024
UNPACKED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of one blob: what is larger is not one of ours."""
MEDIA_TYPE: Final = "application/x-tracklog-journal"

Row = Sequence[Any]
Put = Callable[[bytes], str]
Get = Callable[[str], bytes]


class Journal:
    """Rows in order. `end` counts them."""

    def __init__(self) -> None:
        self.end = 0
        self.size_bytes = 0
        self._begin = 0
        self._blobs: list[str] = []
        self._open: list[bytes] = []

    def add(self, *row: Any) -> None:
        """A row: JSON values."""
        data = orjson.dumps(row)
        self._open.append(data)
        self.end += 1
        self.size_bytes += len(data)

    def store(self, until: int, put: Put) -> dict[str, Any]:
        """The first `until` rows as JSON, for a checkpoint; `put` keeps what is sealed.

        May run in a thread beside `add`, one at a time.
        """
        ready = until - self._begin
        rows = self._open[:ready]
        if sum(map(len, rows)) > SEALED_BYTES:
            self._blobs.append(put(packed(b"[" + b",".join(rows) + b"]")))
            self._begin = until
            del self._open[:ready]
            rows = []
        return {"blobs": list(self._blobs), "rows": [orjson.Fragment(row) for row in rows]}

    def after(self, begin: int) -> list[Any]:
        """The rows from `begin` on, none of which is sealed."""
        return [orjson.loads(row) for row in self._open[begin - self._begin :]]

    @classmethod
    def load(cls, stored: dict[str, Any], get: Get) -> tuple[Journal, list[Any]]:
        """(the journal, its rows). Raises BlobMissing, BlobAltered."""
        journal, rows = cls(), list[Any]()
        for digest in stored["blobs"]:
            data = unpacked(get(digest))
            sealed = orjson.loads(data)
            rows += sealed
            journal.end += len(sealed)
            journal.size_bytes += len(data)
            journal._blobs.append(digest)
        journal._begin = journal.end
        for row in stored["rows"]:
            journal.add(*row)
            rows.append(row)
        return journal, rows


class MemoryJournal:
    """A JSON value over time, as what was added to its lists and what else was set.

    Begins anew when its rows have become more than twice the value.
    """

    def __init__(self) -> None:
        self._journal = Journal()
        self._seen: dict[str, list[bytes]] = {}

    def store(self, memory: bytes, put: Put) -> dict[str, Any]:
        """The value as JSON, for a checkpoint."""
        value = orjson.loads(memory)
        self._take(value)
        if self._journal.size_bytes > 2 * len(memory) + SEALED_BYTES:
            self._journal, self._seen = Journal(), {}
            self._take(value)
        return self._journal.store(self._journal.end, put)

    @classmethod
    def load(cls, stored: dict[str, Any], get: Get) -> tuple[MemoryJournal, Any]:
        """(the journal, the value). Raises BlobMissing, BlobAltered."""
        memory = cls()
        memory._journal, rows = Journal.load(stored, get)
        value: Any = None
        for row in rows:
            value = _apply(value, row)
        memory._seen = _digests(value)
        return memory, value

    def _take(self, value: Any) -> None:
        now = _digests(value)
        for key in [key for key in self._seen if key not in now]:
            self._journal.add("drop", key)
        for key, items in now.items():
            before = self._seen.get(key)
            if before == items:
                continue
            whole = value if key == WHOLE else value[key[1:]]
            if before is not None and isinstance(whole, list) and items[: len(before)] == before:
                self._journal.add("more", key, whole[len(before) - 1 :])
            else:
                self._journal.add("set", key, whole)
        self._seen = now


WHOLE: Final = "="
"""The key of a value that is no object; those of an object begin with a dot."""


def _digests(value: Any) -> dict[str, list[bytes]]:
    """Key -> what its value is: for a list what it is and what each of its items is."""
    if value is None:
        return {}
    members = {f".{key}": item for key, item in value.items()} if isinstance(value, dict) else {WHOLE: value}
    return {key: _items(item) for key, item in members.items()}


def _items(value: Any) -> list[bytes]:
    if isinstance(value, list):
        return [b"list", *map(_digest, value)]
    return [_digest(value)]


def _digest(value: Any) -> bytes:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).digest()


def _apply(value: Any, row: Row) -> Any:
    what, key, *given = row
    if key == WHOLE:
        if what == "more":
            value.extend(given[0])
            return value
        return given[0] if given else None
    value = value if isinstance(value, dict) else {}
    if what == "drop":
        del value[key[1:]]
    elif what == "more":
        value[key[1:]].extend(given[0])
    else:
        value[key[1:]] = given[0]
    return value


def edits_row(edits: Sequence[ContextEdit]) -> list[list[Any]]:
    """The edits of a context in short: [op, count or seqs] each."""
    return [[edit.op.value, list(edit.seqs) if edit.op is EditOp.ADD else edit.count] for edit in edits]


def edited(context: tuple[int, ...], row: Sequence[Sequence[Any]]) -> tuple[int, ...]:
    """The seqs of a context, from those of the one before and such a row."""
    out: list[int] = []
    cursor = 0
    for op, given in row:
        if op == EditOp.ADD:
            out += given
            continue
        if op == EditOp.KEEP:
            out += context[cursor : cursor + given]
        cursor += given
    return tuple(out)


def packed(data: bytes) -> bytes:
    return zlib.compress(data, 6)


def unpacked(data: bytes) -> bytes:
    """The inverse of `packed`. Raises BlobAltered for anything else."""
    unpacking = zlib.decompressobj()
    try:
        out = unpacking.decompress(data, UNPACKED_BYTES_MAX)
    except zlib.error as error:
        raise BlobAltered(f"a blob is no part of a checkpoint: {error}") from error
    if not unpacking.eof:
        raise BlobAltered("a blob is no part of a checkpoint: it is cut or too large")
    return out


def rows_of(rows: Iterable[Row], kind: str) -> list[Row]:
    """Those of one kind, without it."""
    return [row[1:] for row in rows if row[0] == kind]
