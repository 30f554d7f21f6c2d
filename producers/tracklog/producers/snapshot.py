"""What a checkpoint keeps beside files, as one blob: where to go on, what was remembered there, the state (DESIGN §7).

until          seq up to which the program's turns are finished: what is recorded after it is answered, not run
memory         what the last finished turn left, for the next one; without it everything is answered
spent          by then; repeated: the last call, and how often in a row
rows           what the session itself remembers there (see `journal`)
state          of the trajectory at `seq_covered` of the event, without its context, which `rows` and `edits` give
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tracklog.infra.blobs import BlobStore
from tracklog.producers.journal import Journal, MemoryJournal, edited, packed, rows_of, unpacked
from tracklog.producers.repeats import Repeated
from tracklog.producers.spend import Spend
from tracklog.schemas.errors import BlobAltered
from tracklog.schemas.state import MessageRef, State, dump_state, load_state
from tracklog.schemas.values import BlobRef

__all__ = ["Loaded", "Mark", "Recall", "blobs_of_snapshot", "load_snapshot", "store_snapshot"]

VERSION: Final = 1
MEDIA_TYPE: Final = "application/x-tracklog-checkpoint"


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a program's turn ended. `memory`: what it left, as JSON text; `rows`: how many there were then.

    `seen`: the event that the program's own task had seen last.
    """

    until: int
    turn: int
    replies: int
    seen: int | None
    rows: int
    memory: bytes
    spent: Spend
    repeated: Repeated


@dataclass(frozen=True, slots=True)
class Recall:
    """What a session goes on with at a mark: the other direction of `Mark`."""

    until: int
    turn: int
    replies: int
    seen: int | None
    spent: Spend
    repeated: Repeated
    memory: Any
    rows: Sequence[Any]
    journal: Journal
    remembered: MemoryJournal


@dataclass(frozen=True, slots=True)
class Loaded:
    """A snapshot that was read back. `recall` is None for one of a program that has no memory."""

    state: State
    recall: Recall | None


def store_snapshot(
    blobs: BlobStore, state: State, journal: Journal, mark: Mark | None, remembered: MemoryJournal
) -> BlobRef:
    """Keeps a snapshot; durable when this returns. Raises BlobError."""

    def put(data: bytes) -> str:
        return blobs.put(data, media_type=MEDIA_TYPE)

    plain: dict[str, Any] = {
        "version": VERSION,
        "trajectory": state.trajectory_id,
        "state": orjson.Fragment(dump_state(state._replace(context=()))),
    }
    if mark is not None:
        plain |= {
            "until": mark.until,
            "turn": mark.turn,
            "replies": mark.replies,
            "seen": mark.seen,
            "spent": list(mark.spent),
            "repeated": list(mark.repeated),
            "rows": journal.store(mark.rows, put),
            "edits": rows_of(journal.after(mark.rows), "edits"),
            "memory": remembered.store(mark.memory, put),
        }
    data = packed(orjson.dumps(plain))
    return BlobRef(hash=bytes.fromhex(put(data)), size_bytes=len(data), media_type=MEDIA_TYPE)


def load_snapshot(blobs: BlobStore, ref: BlobRef, trajectory_id: str) -> Loaded:
    """Reads one back. Raises BlobMissing, BlobAltered (also for what is no snapshot of this trajectory), BlobError."""
    data = unpacked(blobs.get(ref.hash.hex()))
    try:
        plain = orjson.loads(data)
        if plain["version"] != VERSION or plain["trajectory"] != trajectory_id:
            raise ValueError(f"version {plain['version']} of trajectory {plain['trajectory']!r}")
        state = load_state(orjson.dumps(plain["state"]))
        if "until" not in plain:
            return Loaded(state, None)
        journal, rows = Journal.load(plain["rows"], blobs.get)
        remembered, memory = MemoryJournal.load(plain["memory"], blobs.get)
        state = state._replace(context=_context([*rows_of(rows, "edits"), *plain["edits"]]))
        kept = (plain["until"], plain["turn"], plain["replies"], plain["seen"])
        counted = (Spend(*plain["spent"]), Repeated(*plain["repeated"]))
        return Loaded(state, Recall(*kept, *counted, memory, rows, journal, remembered))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise BlobAltered(
            f"blob {ref.hash.hex()} is no checkpoint of trajectory {trajectory_id!r} that is known here: {error}"
        ) from error


def blobs_of_snapshot(data: bytes) -> tuple[str, ...]:
    """The hashes of the blobs that a stored snapshot needs. Raises BlobAltered for what is none."""
    try:
        plain = orjson.loads(unpacked(data))
        return tuple(digest for part in ("rows", "memory") if part in plain for digest in plain[part]["blobs"])
    except (ValueError, KeyError, TypeError) as error:
        raise BlobAltered(f"a blob is no checkpoint: {error}") from error


def _context(rows: Sequence[Sequence[Any]]) -> tuple[MessageRef, ...]:
    context: tuple[int, ...] = ()
    for row in rows:
        context = edited(context, row[0])
    return tuple(MessageRef(seq) for seq in context)
