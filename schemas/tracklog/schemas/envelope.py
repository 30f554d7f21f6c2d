"""The first field of every record: who, where in the order, and what it hangs on.

Frozen for ever (DESIGN §4): an Avro record is the concatenation of its fields, so the envelope decodes as
a prefix of any type, unknown ones included. New facts go into `ext`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from tracklog.schemas.values import Count, Hash, Id16, InboxId, Micros, Name, Ref, Text, TrajectoryId, Value


class Envelope(Value):
    """Of an event. `seq` is gapless inside a trajectory; `prev_hash` is the hash of the event before it."""

    trajectory_id: TrajectoryId
    tenant: Name
    seq: Count
    epoch: Count
    turn: Count
    event_id: Id16
    causes: tuple[Ref, ...] = ()
    lamport: Count
    recorded_at: Micros
    inbox_id: InboxId | None = None
    inbox_position: Count | None = None
    key_id: Text | None = None
    prev_hash: Hash
    ext: Mapping[str, str] = Field(default_factory=dict)


class InboxEnvelope(Value):
    """Of an inbox record. (source, source_seq) is its identity: appended twice, it is taken once."""

    trajectory_id: TrajectoryId
    tenant: Name
    source: Name
    source_seq: Count
    causes: tuple[Ref, ...] = ()
    lamport: Count
    recorded_at: Micros
    key_id: Text | None = None
    ext: Mapping[str, str] = Field(default_factory=dict)

    @property
    def inbox_id(self) -> InboxId:
        return InboxId(source=self.source, seq=self.source_seq)


class LedgerEnvelope(Value):
    """Of an attempt-ledger record: which call, which slot, and which start of a process wrote it."""

    trajectory_id: TrajectoryId
    tenant: Name
    call_id: Name
    intent_hash: Hash
    slot: Count
    nonce: Id16
    recorded_at: Micros
    ext: Mapping[str, str] = Field(default_factory=dict)
