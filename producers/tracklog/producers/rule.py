"""The rule by which contexts are made and hashed: that of sessions, or that of a run which was imported.

    session/1    a call goes by an id that is unique in its trajectory; a result is a plain tool message
    recorded     each message is as it was recorded, whatever the harness was that kept it so

So a program over an imported run is given the messages of the recording, and its contexts have the recorded hashes
when it puts them together as the recorded harness did. What a recording does not say is not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tracklog.infra.blobs import BlobStore
from tracklog.producers.importers.plan import RECORDED
from tracklog.producers.importers.rebuild import Retelling
from tracklog.schemas.codec import Event

__all__ = ["SESSION_RULE", "Rule", "imported_rule"]

Message = Mapping[str, Any]


class Rule:
    """`messages` are those that stand for what a session would say itself, by the seq of their events.

    `partial`: the record says only what it says. Rulings on calls that could not be made, and versions that it does
    not name, are not in it.
    """

    def __init__(self, version: str, messages: Mapping[int, Message] | None = None) -> None:
        self.version: Final = version
        self.partial: Final = messages is not None
        self._messages: Mapping[int, Message] = messages or {}

    def message(self, place: int, plain: Message) -> Message:
        """The message of the event at this place; `plain` is what a session makes of it."""
        return self._messages.get(place, plain)


SESSION_RULE: Final = Rule("session/1")


def imported_rule(events: Iterable[Event], blobs: BlobStore) -> Rule:
    """That of an imported run with these events. Raises what reading a blob raises."""
    retelling = Retelling(blobs)
    messages = {event.envelope.seq: retelling.message(event) for event in events}
    return Rule(RECORDED, {seq: message for seq, message in messages.items() if message is not None})
