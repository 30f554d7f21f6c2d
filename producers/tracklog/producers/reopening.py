"""Going back to checkpoints when a session is opened again (DESIGN §7).

    memory       of the last checkpoint that can be read: the program goes on from there, else from its beginning
    workspace    of the last checkpoint whose files can be read, else of the start; then every local call that finished
                 after it is performed again, one at a time in the order of the intents, and must come out the same

A blob that is missing or altered makes the next earlier checkpoint the one; that is noted. With none left, the memory
is not needed: the whole record answers. The files are.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tracklog.infra.blobs import BlobStore
from tracklog.producers.bodies import whole_text
from tracklog.producers.cadence import FAILURES_A_DAY, PAUSE_S, Cadence
from tracklog.producers.checkpoints import EXT_PAUSE, Checkpoints
from tracklog.producers.cursor import describe
from tracklog.producers.divergence import Cause, Diverged, Divergence
from tracklog.producers.pen import WriterPen
from tracklog.producers.record import Record
from tracklog.producers.settle import Settling, Standing
from tracklog.producers.setup import Setup
from tracklog.producers.snapshot import Recall, load_snapshot
from tracklog.producers.tool_run import Ran
from tracklog.producers.workspace import Workspace
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import BlobAltered, BlobError, BlobMissing
from tracklog.schemas.values import BlobRef, Effect, Place, ResultStatus, Settled

__all__ = ["Reopened", "restore_files"]

RAN: Final = frozenset({Settled.DIRECT, Settled.REISSUED})
SHOWN_CHARS_MAX: Final = 200
Shortened = tuple[Recall, Callable[[], Awaitable[list[Event]]]]
"""(the memory that a history was shortened for, what gives all of it)."""
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Reopened:
    """What a session is opened with. `place`: the event whose files were restored; `notes`: what was not as it
    should be, in words."""

    remembers: bool = False
    recall: Recall | None = None
    workspace: Workspace | None = None
    place: int | None = None
    notes: list[str] = field(default_factory=list)

    @classmethod
    async def of(
        cls,
        setup: Setup,
        trajectory_id: str,
        history: Sequence[Event],
        settling: Settling,
        *,
        remembers: bool,
        shortcut: Shortened | None,
    ) -> Reopened:
        """Goes back to what can be gone back to; `history` begins with what a fork inherits.

        Raises as `restore_files`, and WorkspaceError.
        """
        out = cls(remembers)
        if remembers:
            out.recall = shortcut[0] if shortcut is not None else await recall_of(history, setup.store, out.notes)
        if setup.workspace is not None:
            out.workspace = Workspace(setup.workspace, trajectory_id, setup.store, setup.clock)
            first = all(_files(event) is None for event in history)
            await asyncio.to_thread(out.workspace.open, first=first)
            out.place = await restore_files(history, out.workspace, setup.store, settling, out.notes, shortcut)
        for note in out.notes:
            logger.warning("trajectory %s: %s", trajectory_id, note)
        return out

    def checkpoints(self, setup: Setup, record: Record, pen: WriterPen, history: Sequence[Event]) -> Checkpoints | None:
        """Takes them from here on; None for a session that has nothing to keep."""
        if self.workspace is None and not self.remembers:
            return None
        last = _last_checkpoint(history)
        return Checkpoints(
            record,
            pen,
            setup.store,
            setup.clock,
            Cadence(_failures_a_day(setup), pause_s=_pause_s(last)),
            workspace=self.workspace,
            remembers=self.remembers,
            recall=self.recall,
            place=self.place,
            turn=0 if last is None else last.envelope.turn,
        )


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


async def restore_files(
    history: Sequence[Event],
    workspace: Workspace,
    blobs: BlobStore,
    settling: Settling,
    notes: list[str],
    shortcut: Shortened | None = None,
) -> int | None:
    """Makes the workspace what it was at the end of this history; the seq of the event whose files were restored.

    None when that is one of its origin, or when the trajectory never had any files: what is there stays. Raises
    Diverged when a local call comes out otherwise than recorded, BlobMissing or BlobAltered when no snapshot can be
    read, BlobError, WorkspaceError.
    """
    snapshots = [(at, ref) for at, one in enumerate(history) if (ref := _files(one)) is not None]
    failed: BlobError | None = None
    for at, ref in reversed(snapshots):
        seq = history[at].envelope.seq
        try:
            missing = await asyncio.to_thread(workspace.restore, ref)
        except (BlobMissing, BlobAltered) as error:
            failed = failed or error
            notes.append(f"the files of event {seq} cannot be read: {error.message}")
            continue
        if missing:
            notes.append(f"could not be read when event {seq} was written, and are gone: {', '.join(missing)}")
        if shortcut is not None and seq <= shortcut[0].until:
            history = await shortcut[1]()
            at = next(n for n, one in enumerate(history) if one.envelope.seq == seq)
        await _perform_again(history, at, blobs, settling)
        inherited = history[at].envelope.trajectory_id != history[-1].envelope.trajectory_id
        return None if inherited else seq
    if failed is not None:
        raise failed
    return None


def _last_checkpoint(history: Sequence[Event]) -> Event | None:
    return next((event for event in reversed(history) if isinstance(event.body, ev.CheckpointTaken)), None)


def _failures_a_day(setup: Setup) -> float:
    return FAILURES_A_DAY if setup.failures_a_day is None else setup.failures_a_day


def _pause_s(last: Event | None) -> float:
    """How long the last checkpoint held up the work."""
    text = "" if last is None else last.envelope.ext.get(EXT_PAUSE, "")
    return int(text) / 1_000_000 if text.isdecimal() else PAUSE_S


def _files(event: Event) -> BlobRef | None:
    return event.body.workspace if isinstance(event.body, ev.CheckpointTaken | ev.TaskStarted) else None


async def _perform_again(history: Sequence[Event], since: int, blobs: BlobStore, settling: Settling) -> None:
    results = {one.body.call_id: (one, one.body) for one in history[since + 1 :] if isinstance(one.body, ev.ToolResult)}
    for event in history:
        intent = event.body
        if not isinstance(intent, ev.ToolIntent) or intent.effect is not Effect.LOCAL:
            continue
        if intent.place is not Place.INLINE or intent.call_id not in results:
            continue
        found, result = results[intent.call_id]
        if result.settled not in RAN or result.status is ResultStatus.EXPIRED:
            continue
        arguments = await asyncio.to_thread(whole_text, intent.arguments, blobs)
        seq, turn = event.envelope.seq, event.envelope.turn
        standing = Standing(intent, arguments, seq, turn, appended_us=0, attempts=result.attempts)
        _check_same(found, result, await settling.again(standing))


def _check_same(event: Event, result: ev.ToolResult, ran: Ran) -> None:
    text = ran.output if ran.whole is None else ran.whole
    digest = hashlib.sha256(text.encode("utf-8", "replace")).digest()
    if ran.status is result.status and digest == result.output.hash:
        return
    asked = f"the same call, performed again after its files were restored: {ran.status.value} {ran.output!r}"
    turn, seq = event.envelope.turn, event.envelope.seq
    raise Diverged(Divergence(turn, seq, describe(result), asked[:SHOWN_CHARS_MAX], cause=Cause.ENVIRONMENT))
