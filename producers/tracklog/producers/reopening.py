"""Going back to checkpoints when a session is opened again (DESIGN §7).

    memory       of the last checkpoint that can be read: the program goes on from there, else from its beginning
    workspace    of the last checkpoint whose files can be read, else of the start; then every local call that finished
                 after it is performed again, one at a time in the order of the intents, and must come out the same

A blob that is missing or altered makes the next earlier checkpoint the one; that is noted. With none left, the memory
is not needed: the whole record answers. The files are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tracklog.infra.blobs import BlobStore
from tracklog.producers.checkpoints import EXT_PAUSE
from tracklog.producers.divergence import Cause, Diverged, Divergence, cut, describe
from tracklog.producers.snapshot import Recall, load_snapshot
from tracklog.producers.tool_run import Ran
from tracklog.producers.workspace import Workspace
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import BlobAltered, BlobError, BlobMissing
from tracklog.schemas.values import BlobRef, Body, Effect, Place, ResultStatus, Settled

__all__ = ["Again", "Reopened", "last_pause_s", "recall_of", "restore_files"]

RAN: Final = frozenset({Settled.DIRECT, Settled.REISSUED})

Again = Callable[[ev.ToolIntent, int], Awaitable[Ran]]
"""Performs a finished call again: (intent, its turn)."""


@dataclass(slots=True)
class Reopened:
    """What a session was opened with. `notes`: what was not as it should be, in words."""

    recall: Recall | None = None
    place: int | None = None
    notes: list[str] = field(default_factory=list)


async def recall_of(history: Sequence[Event], blobs: BlobStore, notes: list[str]) -> Recall | None:
    """The memory of the last checkpoint that has one and can be read. Raises BlobError when nobody can say."""
    for event in reversed(history):
        body = event.body
        if not isinstance(body, ev.CheckpointTaken):
            continue
        try:
            loaded = await asyncio.to_thread(load_snapshot, blobs, body.state, event.envelope.trajectory_id)
        except (BlobMissing, BlobAltered) as error:
            notes.append(f"the checkpoint of event {event.envelope.seq} cannot be read: {error.message}")
            continue
        if loaded.recall is not None:
            return loaded.recall
    if notes:
        notes.append("no checkpoint can be read: the whole record is gone through")
    return None


async def restore_files(history: Sequence[Event], workspace: Workspace, again: Again, notes: list[str]) -> int | None:
    """Makes the workspace what it was at the end of this history; the seq of the event whose files were restored.

    None when the trajectory never had any: what is there stays. Raises Diverged when a local call comes out
    otherwise than recorded, BlobMissing or BlobAltered when no snapshot can be read, BlobError, WorkspaceError.
    """
    snapshots = [(one.envelope.seq, ref) for one in history if (ref := _files(one)) is not None]
    failed: BlobError | None = None
    for seq, ref in reversed(snapshots):
        try:
            missing = await asyncio.to_thread(workspace.restore, ref)
        except (BlobMissing, BlobAltered) as error:
            failed = failed or error
            notes.append(f"the files of event {seq} cannot be read: {error.message}")
            continue
        if missing:
            notes.append(f"could not be read when event {seq} was written, and are gone: {', '.join(missing)}")
        await _perform_again(history, seq, again)
        return seq
    if failed is not None:
        raise failed
    return None


def last_pause_s(history: Sequence[Event]) -> float | None:
    """How long the last checkpoint held up the work, None when that is not known."""
    for event in reversed(history):
        text = event.envelope.ext.get(EXT_PAUSE, "")
        if isinstance(event.body, ev.CheckpointTaken) and text.isdecimal():
            return int(text) / 1_000_000
    return None


def _files(event: Event) -> BlobRef | None:
    return event.body.workspace if isinstance(event.body, ev.CheckpointTaken | ev.TaskStarted) else None


async def _perform_again(history: Sequence[Event], since: int, again: Again) -> None:
    results = {
        one.body.call_id: (one, one.body)
        for one in history
        if isinstance(one.body, ev.ToolResult) and one.envelope.seq > since
    }
    for event in history:
        intent = event.body
        if not isinstance(intent, ev.ToolIntent) or intent.effect is not Effect.LOCAL or intent.place is not Place.INLINE:
            continue
        found = results.get(intent.call_id)
        if found is None or found[1].settled not in RAN or found[1].status is ResultStatus.EXPIRED:
            continue
        ran = await again(intent, event.envelope.turn)
        _check_same(found[0], found[1], ran)


def _check_same(event: Event, result: ev.ToolResult, ran: Ran) -> None:
    text = ran.output if ran.whole is None else ran.whole
    if ran.status is result.status and Body.of(text).hash == result.output.hash:
        return
    asked = f"the same call, performed again: {ran.status.value} {cut(ran.output)}"
    raise Diverged(
        Divergence(event.envelope.turn, event.envelope.seq, describe(result), asked, cause=Cause.ENVIRONMENT)
    )
