"""What the log says of a trajectory that clients record: who holds it, which of their events are in, what was said.

Folded from the accepted events alone, so that every replica comes to the same and none must remember anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.port import Position
from tracklog.producers.history import Accepted
from tracklog.producers.importers.rebuild import Retelling
from tracklog.producers.importers.transcript import seen_hash
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.values import Driver

__all__ = ["EXT_GIVEN", "EXT_LEASE", "In", "Lease", "Recording", "source_of"]

EXT_GIVEN: Final = "given"
"""In `ext` of an event: the hash of what its client gave, in hexadecimal. Under its number nothing else is taken."""
EXT_LEASE: Final = "lease_s"
"""In `ext` of a claim: the seconds for which its client holds the trajectory after its last event."""
_MS_PER_S: Final = 1000


class In(NamedTuple):
    """A client's event that the log has accepted."""

    seq: int
    epoch: int
    hash: bytes
    given: str
    position: Position


class Lease(NamedTuple):
    """Of the last claim. `owner` "": nobody has claimed it, or who did has released it. `last_ms`: the log's time of
    the last event, from which the lease counts."""

    owner: str = ""
    nonce: bytes = b""
    lease_s: int = 0
    last_ms: int = 0

    @property
    def until_ms(self) -> int:
        return self.last_ms + self.lease_s * _MS_PER_S

    def held_against(self, owner: str, now_ms: int) -> bool:
        """Whether somebody else has it now."""
        return self.owner not in ("", owner) and now_ms < self.until_ms


class Recording:
    """Of one trajectory. `take` its accepted events in order; one that was taken before is passed over."""

    def __init__(self, blobs: BlobStore) -> None:
        self.drivers: set[Driver] = set()
        """Of all its claims."""
        self.lease = Lease()
        self.said: dict[int, bytes] = {}
        """By seq, in order: the hash of the message that the event holds."""
        self.context_seq: int | None = None
        self.replies: dict[str, int] = {}
        """By call, the seq of the last reply that asks for it."""
        self.intents: dict[str, int] = {}
        """The same of its intent, while it is open."""
        self.retelling: Final = Retelling(blobs)
        self._in: dict[str, dict[int, In]] = {}
        self._seq = -1

    def take(self, accepted: Iterable[Accepted]) -> None:
        """Reads bodies that are not in their event from the blob store: blocks. Raises BlobError."""
        for event, position in accepted:
            if event.envelope.seq > self._seq:
                self._take(event, position)
                self._seq = event.envelope.seq
                self.lease = self.lease._replace(last_ms=position.timestamp_ms)

    def found(self, source: str, first: int, count: int) -> list[In]:
        """Of these numbers of a client, those that are in: an event is accepted after all before it."""
        numbers = self._in.get(source, {})
        return [numbers[number] for number in range(first, first + count) if number in numbers]

    def next_number(self, source: str) -> int:
        """The number of the next event of a client."""
        return len(self._in.get(source, ()))

    def seq_of(self, source: str, number: int) -> int | None:
        found = self._in.get(source, {}).get(number)
        return None if found is None else found.seq

    def _take(self, event: Event, position: Position) -> None:
        envelope, body = event.envelope, event.body
        taken = envelope.inbox_id
        if taken is not None:
            given = envelope.ext.get(EXT_GIVEN, "")
            one = In(envelope.seq, envelope.epoch, event.hash, given, position)
            self._in.setdefault(taken.source, {})[taken.seq] = one
        if isinstance(body, ev.OwnershipClaimed):
            self.drivers.add(body.driver)
            lease_s = envelope.ext.get(EXT_LEASE, "")
            self.lease = Lease(body.owner, body.nonce, int(lease_s) if lease_s.isdecimal() else 0)
        elif isinstance(body, ev.OwnershipReleased):
            self.lease = Lease()
        elif isinstance(body, ev.ContextBuilt):
            self.context_seq = envelope.seq
        elif isinstance(body, ev.ModelReplied):
            self.replies.update((call.call_id, envelope.seq) for call in body.tool_calls)
        elif isinstance(body, ev.ToolIntent):
            self.intents[body.call_id] = envelope.seq
        message = self.retelling.message(event) if self._ours else None
        if isinstance(body, ev.ToolResult):
            self.intents.pop(body.call_id, None)
        if message is not None:
            self.said[envelope.seq] = seen_hash(message)

    @property
    def _ours(self) -> bool:
        """Of others' trajectories nothing is read that a client of theirs may have put there in another form."""
        return self.drivers == {Driver.INGEST}


def source_of(owner: str) -> str:
    """The source under which the events of a client are counted, in the log and in the state."""
    return f"ingest:{owner}"
