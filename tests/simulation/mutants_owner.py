"""Weakened rules of owners, of what they take from the inbox, and of the router (see `mutants`)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from tests.simulation.mutants_dispatch import FOR_EVER_US, Mutant
from tracklog.consumers.routing.router import Router
from tracklog.producers import settle, taking
from tracklog.producers.guard import Guard
from tracklog.producers.lanes import Lanes
from tracklog.producers.mailbox import LogMailbox
from tracklog.producers.pen import WriterPen
from tracklog.producers.pipeline import Pipeline
from tracklog.producers.settle import Outcome, Settling
from tracklog.producers.taking import Taking
from tracklog.producers.track import Track
from tracklog.producers.writer import TrajectoryWriter
from tracklog.schemas import events as ev
from tracklog.schemas.codec import decode_event
from tracklog.schemas.head import Verdict, judge
from tracklog.schemas.lifecycle import EXT_LANE
from tracklog.schemas.values import Settled

__all__ = ["OWNER"]


async def _claim_by_name(self: Any) -> None:
    """Won when the head's owner has the own name, whichever start of it that was."""
    name = self._claim.owner.partition("#")[0]
    self._claim = self._claim.model_copy(update={"nonce": hashlib.sha256(name.encode()).digest()[:16]})
    claim = self._chain(self._claim, self._turn, (), 0, None, None, {})
    await self._send(claim)
    await self.barrier()
    state = (await self._producer.track_of(self.trajectory_id)).state
    if state.head.owner != self._claim.nonce:
        raise self._end(self._fenced(state))
    self._epoch, self._seq, self._hash = state.head.epoch, state.head.seq, state.head.hash
    self.state, self._guard = state, Guard(state)


@contextmanager
def _judged_by_offset() -> Iterator[None]:
    """By what the log says of the last try: a duplicate was not accepted."""
    fold_one = Track._fold_one

    def folding(self: Any, record: Any) -> None:
        event = decode_event(record.key, record.value, record.headers)
        if judge(self.state.head, event).verdict is Verdict.DUPLICATE:
            self._accepted.pop(event.envelope.seq, None)
        fold_one(self, record)

    with patch.object(Track, "_fold_one", folding):
        yield


def _judged_by_the_head(self: Any, seq: int, digest: bytes) -> bool:
    return bool(self.state.head.seq >= seq)


def _believes_the_last(self: Any, entry: Any, error: Any) -> None:
    """An acknowledgement stands for everything before it."""
    entry.reported, entry.error = True, error
    self.troubled = self.troubled or error is not None
    if error is None:
        while self.entries and self.entries[0] is not entry:
            self.entries.popleft()
        if self.entries:
            self.entries.popleft()
        self.troubled = False
    self.moved.set()


@contextmanager
def _appends_the_last_again() -> Iterator[None]:
    send = TrajectoryWriter._send

    async def sending(self: Any, entry: Any) -> None:
        if self._pipeline.troubled and entry is not self._pipeline.entries[-1]:
            entry.reported = True
            return
        await send(self, entry)

    with patch.object(TrajectoryWriter, "_send", sending):
        yield


async def _stands_as_known(self: Any) -> Any:
    return self.writer.state


@contextmanager
def _passes_over() -> Iterator[None]:
    """What does not fit to what is known is passed over while an event of one's own is undecided."""
    take_all = taking.take_all

    async def passing(pen: Any, mailbox: Any, clock: Any, unfit: Any, again: Any) -> Any:
        state = pen.writer.state
        for one in mailbox.waiting() if state.head.seq < pen.last else ():
            if isinstance(taking._event(state, one, clock, unfit).body, ev.InboxRefused):
                mailbox.took(one)
        return await take_all(pen, mailbox, clock, unfit, again)

    with patch.object(taking, "take_all", passing):
        yield


@contextmanager
def _any_request() -> Iterator[None]:
    """A decision about a call, whichever request it quotes."""
    decided = taking._decided

    def deciding(state: Any, one: Any, body: Any, clock: Any, unfit: Any) -> Any:
        call = state.calls.get(body.call_id)
        hashed = body.request_hash if call is None or call.request is None else call.request.hash
        return decided(state, one, body.model_copy(update={"request_hash": hashed}), clock, unfit)

    with patch.object(taking, "_decided", deciding):
        yield


@contextmanager
def _last_first() -> Iterator[None]:
    waiting = LogMailbox.waiting

    def reversed_(self: Any) -> Sequence[Any]:
        return tuple(reversed(waiting(self)))

    with patch.object(LogMailbox, "waiting", reversed_):
        yield


@contextmanager
def _not_read_back() -> Iterator[None]:
    confirm = WriterPen.confirm

    async def confirming(self: Any, seq: int) -> None:
        if self.places.trajectory_id and self._confirmed >= 0:
            return
        await confirm(self, seq)

    with patch.object(WriterPen, "confirm", confirming):
        yield


async def _no_wait(self: Any, call: Any) -> None:
    return None


@contextmanager
def _deadline_first() -> Iterator[None]:
    context = Settling._context

    def late(self: Any, call: Any, deadline_us: int) -> Any:
        return replace(context(self, call, deadline_us), deadline_us=FOR_EVER_US)

    with patch.object(settle, "timely", lambda tool, *_: tool), patch.object(Settling, "_context", late):
        yield


async def _reissued_for_ever(self: Any, call: Any) -> Any:
    for _ in range(3):
        ran = await self._send(self._tool_of(call), call, FOR_EVER_US)
        if ran.known:
            return Outcome(ran, Settled.REISSUED)
    return None


def _one_lane(self: Any, name: str) -> Any:
    return {EXT_LANE: "0"}


@contextmanager
def _messages_backwards() -> Iterator[None]:
    deliver = Router._deliver_all

    async def delivering(self: Any, partition: int, posts: Any) -> None:
        await deliver(self, partition, list(reversed(list(posts))))

    with patch.object(Router, "_deliver_all", delivering):
        yield


OWNER: Final[dict[str, Mutant]] = {
    "a claim is judged by the owner's name [Y01]": lambda: patch.object(
        TrajectoryWriter, "claim_and_read_back", _claim_by_name
    ),
    "an append is judged by its last try [Y02]": _judged_by_offset,
    "an append is judged by the head [W06]": lambda: patch.object(Track, "accepted", _judged_by_the_head),
    "the last report is believed for all [W05]": lambda: patch.object(Pipeline, "report", _believes_the_last),
    "only the last is appended again [W07]": _appends_the_last_again,
    "the inbox is taken by what is known [Y03]": lambda: patch.object(WriterPen, "standing", _stands_as_known),
    "the inbox is passed over while undecided [Y03]": _passes_over,
    "a decision about any request of the call [Y05]": _any_request,
    "the last decision counts [rule 10]": _last_first,
    "a tool in the process runs before its intent was read back [Z02]": _not_read_back,
    "the next owner does not wait for the grace [Z03, Z04]": lambda: patch.object(Settling, "_wait", _no_wait),
    "in the process the deadline is not looked at last [rule 11]": _deadline_first,
    "in the process a key is used after its life [X17-X19]": lambda: patch.object(
        Settling, "_reissue", _reissued_for_ever
    ),
    "what is open side by side shares a lane": lambda: patch.object(Lanes, "ext", _one_lane),
    "messages of a sender out of order": _messages_backwards,
    "what was taken and not given out is waited for": lambda: patch.object(Taking, "left_over", new=False),
}
