"""Child runs in the record (DESIGN §9): the events that state one, belong to one and tell its end. Pure.

    the parent's MessageSent     `peer` is the child, the message its task; ext `child` names its agent
    the child's TaskStarted      `parent` is that event; ext has its hash, its lane and how deep the child is
    the parent's MessageReceived comes from the child when that has ended; ext `ended` says how

What else is to be known of a child stands in the ext of the statement, so that nobody reads a blob to start it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tracklog.schemas.codec import Event
from tracklog.schemas.events import InboxRefused, MessageReceived, MessageSent, TaskStarted
from tracklog.schemas.lifecycle import EXT_LANE, lane_of
from tracklog.schemas.values import HASH_BYTES, Ending, Ref

__all__ = [
    "EXT_BEHALF",
    "EXT_BUDGETS",
    "EXT_CHILD",
    "EXT_DEPTH",
    "EXT_ENDED",
    "EXT_LABELS",
    "EXT_SPAWN",
    "EXT_SWARM",
    "EXT_WAITS",
    "EXT_WITHHELD",
    "FROM",
    "ChildOf",
    "child_of",
    "depth_of",
    "ended_of",
    "ending_of",
    "refused_child",
    "spawn_ext",
    "spawned",
]

EXT_CHILD: Final = "child"
EXT_BEHALF: Final = "on_behalf_of"
EXT_BUDGETS: Final = "budgets"
EXT_LABELS: Final = "labels"
EXT_SWARM: Final = "swarm"
EXT_ENDED: Final = "ended"
EXT_SPAWN: Final = "spawn"
EXT_DEPTH: Final = "depth"
EXT_WAITS: Final = "waits_for"
"""In `ext` of a release: the trajectory that is waited for."""
EXT_WITHHELD: Final = "withheld"
"""In `ext` of a MessageSent that nobody is told: a fork beside its origin said it."""
FROM: Final = "msg/"
"""The source, in an inbox, of what another trajectory says: this and its id."""
_ENDINGS: Final = {one.value: one for one in Ending}


class ChildOf(NamedTuple):
    """Whose child a trajectory is: the event that states it, that one's hash and lane, and how deep the child is."""

    parent: Ref
    hash: bytes
    lane: int
    depth: int

    @property
    def ext(self) -> Mapping[str, str]:
        return {EXT_SPAWN: self.hash.hex(), EXT_LANE: str(self.lane), EXT_DEPTH: str(self.depth)}

    @classmethod
    def of(cls, parent: Ref | None, ext: Mapping[str, str]) -> ChildOf | None:
        """As the ext of a TaskStarted or a Submit says it; None for what is nobody's child."""
        try:
            digest = bytes.fromhex(ext.get(EXT_SPAWN, ""))
        except ValueError:
            return None
        if parent is None or len(digest) != HASH_BYTES:
            return None
        return cls(parent, digest, lane_of(ext), depth_of(ext))


def spawned(event: Event) -> str | None:
    """The agent of the child run that this event states, None for one that states none."""
    return event.envelope.ext.get(EXT_CHILD) if type(event.body) is MessageSent else None


def ending_of(event: Event) -> Ending | None:
    """How a child run ended, of the event that tells it; None for another event."""
    return ended_of(event.envelope.ext) if type(event.body) is MessageReceived else None


def ended_of(ext: Mapping[str, str]) -> Ending | None:
    """The same of the ext alone."""
    return _ENDINGS.get(ext.get(EXT_ENDED, ""))


def child_of(event: Event) -> ChildOf | None:
    """Whose child the trajectory is that this event started."""
    return ChildOf.of(event.body.parent, event.envelope.ext) if type(event.body) is TaskStarted else None


def refused_child(event: Event) -> ChildOf | None:
    """Whose child could not begin, of the event that refuses its Submit: its id was taken. None for another refusal."""
    body = event.body
    if type(body) is not InboxRefused or not body.refused.source.startswith(FROM):
        return None
    parent = Ref(trajectory_id=body.refused.source.removeprefix(FROM), seq=body.refused.seq)
    return ChildOf.of(parent, event.envelope.ext)


def spawn_ext(ext: Mapping[str, str]) -> Mapping[str, str]:
    """Of the ext of a Submit what says whose child is submitted."""
    return {name: ext[name] for name in (EXT_SPAWN, EXT_LANE, EXT_DEPTH) if name in ext} if EXT_SPAWN in ext else {}


def depth_of(ext: Mapping[str, str]) -> int:
    """0 for what nobody has spawned."""
    text = ext.get(EXT_DEPTH, "0")
    return int(text) if text.isdecimal() else 0
