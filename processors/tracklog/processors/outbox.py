"""What a trajectory has to say to others, folded from its events: a part of its agenda. Pure.

MessageSent                    its peer is told, or a child run is to begin
CancelRequested, TaskEnded     the child runs whose end it has not heard are to be cancelled
TaskEnded of a child run       its parent is told
InboxRefused of its Submit     the parent is told as well: the child's id was taken
"""

from __future__ import annotations

from typing import Final, NamedTuple

import orjson

from tracklog.infra.log.port import Record
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.spawn import EXT_WITHHELD, ChildOf, child_of, ending_of, refused_child, spawned

__all__ = ["POSTS_MAX", "Outbox", "Post", "post_of"]

POSTS_MAX: Final = 5000
"""Records of one trajectory that one batch may bring: whoever folds it takes no more at once."""
KEPT_MAX: Final = 2 * POSTS_MAX
"""Posts that a batch may come to: one a record, and those of a last record that cancels children."""


class Post(NamedTuple):
    """Where an event lies that somebody is to be told of.

    A MessageSent says itself whom. `child`: the child run that is to be cancelled for it. `parent`, `spawn`, `hash` and
    `lane`: the parent that is to hear of the end of its child, and the event by which it stated it.
    """

    offset: int
    trajectory_id: str
    seq: int
    child: str = ""
    parent: str = ""
    spawn: int = -1
    hash: str = ""
    lane: int = 0


class Outbox(NamedTuple):
    """`posts` are the last ones, `children` the child runs that it has not heard the end of, `parent` whom its own end
    is told."""

    posts: tuple[Post, ...] = ()
    children: tuple[str, ...] = ()
    parent: ChildOf | None = None

    def after(self, event: Event, record: Record) -> Outbox:
        """Once this event was accepted."""
        post = Post(record.offset, event.envelope.trajectory_id, event.envelope.seq)
        match event.body:
            case ev.TaskStarted():
                return self._replace(parent=child_of(event))
            case ev.MessageSent(peer=peer) if EXT_WITHHELD not in event.envelope.ext:
                children = self.children if spawned(event) is None else (*self.children, peer)
                return self._with(post)._replace(children=children)
            case ev.MessageReceived(peer=peer) if ending_of(event) is not None:
                return self._replace(children=tuple(one for one in self.children if one != peer))
            case ev.InboxRefused():
                return self._tell(post, refused_child(event))
            case ev.CancelRequested():
                return self._abandon(post)
            case ev.TaskEnded():
                return self._abandon(post)._tell(post, self.parent)
            case _:
                return self

    def _with(self, *posts: Post) -> Outbox:
        return self._replace(posts=(*self.posts[-KEPT_MAX:], *posts))

    def _abandon(self, post: Post) -> Outbox:
        return self._with(*(post._replace(child=child) for child in self.children))._replace(children=())

    def _tell(self, post: Post, of: ChildOf | None) -> Outbox:
        if of is None:
            return self
        ref = of.parent
        return self._with(post._replace(parent=ref.trajectory_id, spawn=ref.seq, hash=of.hash.hex(), lane=of.lane))


def post_of(member: bytes) -> Post:
    """Raises ValueError for what is none."""
    return Post(*orjson.loads(member))
