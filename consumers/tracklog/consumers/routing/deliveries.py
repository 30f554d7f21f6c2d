"""What one trajectory is to be told of an event of another one: the inbox record, made from the event alone. Pure.

    MessageSent                      Message, or the Submit of the child run that it states
    CancelRequested, TaskEnded       Cancel, for each child run whose end was not heard
    TaskEnded of a child run         Outcome, for its parent
    InboxRefused of its Submit       Outcome too: its id was taken

Each has its identity from the event, so it may be posted again. Those of one sender are numbered in its own order; the
outcomes of child runs, which come in any order, within their lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import orjson

from tracklog.processors.outbox import Post
from tracklog.schemas.codec import Event
from tracklog.schemas.events import CancelRequested, InboxRefused, MessageSent, TaskEnded, TaskStarted
from tracklog.schemas.inbox import Cancel, InboxBody, Message, Outcome, Submit
from tracklog.schemas.lifecycle import EXT_LANE
from tracklog.schemas.spawn import (
    EXT_BEHALF,
    EXT_BUDGETS,
    EXT_CHILD,
    EXT_ENDED,
    EXT_LABELS,
    EXT_SWARM,
    FROM,
    ChildOf,
    depth_of,
    spawned,
)
from tracklog.schemas.values import (
    NO_BUDGETS,
    Body,
    Budgets,
    Driver,
    Ending,
    InboxId,
    Ref,
    ResultStatus,
    Role,
    Settled,
)

__all__ = ["Delivery", "delivery_of"]

_STATUS: Final = {
    Ending.COMPLETED: ResultStatus.OK,
    Ending.FAILED: ResultStatus.ERROR,
    Ending.CANCELLED: ResultStatus.CANCELLED,
    Ending.REFUSED: ResultStatus.DENIED,
}
_NO_EXT: Final[Mapping[str, str]] = {}


class Delivery(NamedTuple):
    """A record for the inbox of trajectory `to`. It follows from `cause`, whose Lamport time is `lamport`."""

    to: str
    body: InboxBody
    inbox_id: InboxId
    cause: Ref
    lamport: int
    ext: Mapping[str, str] = _NO_EXT


def delivery_of(event: Event, post: Post) -> Delivery | None:
    """None for an event that nobody is to be told of."""
    sender, body = event.envelope, event.body
    ref = Ref(trajectory_id=sender.trajectory_id, seq=sender.seq)
    said = InboxId(source=f"{FROM}{sender.trajectory_id}", seq=sender.seq)
    if isinstance(body, MessageSent):
        if spawned(event) is not None:
            submit, ext = _submit(event, body, ref)
            return Delivery(body.peer, submit, said, ref, sender.lamport, ext)
        message = Message(peer=sender.trajectory_id, role=Role.AGENT, message=body.message, about=body.about or ref)
        return Delivery(body.peer, message, said, ref, sender.lamport)
    if post.child and isinstance(body, CancelRequested | TaskEnded):
        why = f"its parent {'was cancelled' if isinstance(body, CancelRequested) else 'has ended'}"
        return Delivery(post.child, Cancel(by=sender.trajectory_id, reason=why), said, ref, sender.lamport)
    if post.parent and isinstance(body, TaskEnded | InboxRefused):
        ending, output = _end(body, sender.trajectory_id)
        outcome = Outcome(
            call_id=sender.trajectory_id,
            intent_hash=bytes.fromhex(post.hash),
            slot=0,
            status=_STATUS[ending],
            output=output,
            settled=Settled.DIRECT,
        )
        answers = InboxId(source=f"child/{post.lane}", seq=post.spawn)
        return Delivery(post.parent, outcome, answers, ref, sender.lamport, {EXT_ENDED: ending.value})
    return None


def _submit(event: Event, sent: MessageSent, ref: Ref) -> tuple[Submit, Mapping[str, str]]:
    ext = event.envelope.ext
    own = ChildOf(ref, event.hash, int(ext.get(EXT_LANE, "0")), depth_of(ext))
    task = TaskStarted(
        driver=Driver.WORKER,
        task=sent.message,
        agent=ext[EXT_CHILD],
        swarm=ext.get(EXT_SWARM),
        parent=ref,
        on_behalf_of=ext.get(EXT_BEHALF),
        budgets=Budgets.model_validate_json(ext[EXT_BUDGETS]) if EXT_BUDGETS in ext else NO_BUDGETS,
        labels=orjson.loads(ext.get(EXT_LABELS, "{}")),
    )
    return Submit(task=task), own.ext


def _end(body: TaskEnded | InboxRefused, trajectory_id: str) -> tuple[Ending, Body]:
    if isinstance(body, InboxRefused):
        return Ending.REFUSED, Body.of(f"there is a trajectory {trajectory_id!r} already")
    if body.ending is not Ending.COMPLETED:
        return body.ending, Body.of(body.reason or "no reason given")
    return body.ending, body.result if body.result is not None else Body.of("null")
