"""What owners of trajectories refused of their inboxes. The last thirty days of the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, NamedTuple

import orjson

from tracklog.processors.processor import Processor, Seen, Shape
from tracklog.processors.writes import Rank, Unrank, Write
from tracklog.schemas.events import InboxRefused

KEPT_MS: Final = 30 * 24 * 60 * 60_000


class RefusedRecord(NamedTuple):
    """Of an inbox: `kind` under (`source`, `source_seq`), at `inbox_offset` where that is known, refused in these
    `words` by the event `seq`."""

    trajectory_id: str = ""
    tenant: str = ""
    kind: str = ""
    source: str = ""
    source_seq: int = 0
    words: str = ""
    seq: int = 0
    inbox_offset: int | None = None
    at_ms: int = 0


class Refused(Processor[RefusedRecord]):
    """Sorted sets `all`, and `all:TENANT`, by the time of the refusal: members are `RefusedRecord` as JSON."""

    name = "refused"
    version = 1
    reads = frozenset({"InboxRefused"})
    layout: ClassVar = {"all": Shape.SORTED_SET}

    def key(self, seen: Seen) -> str:
        envelope = seen.event.envelope
        return f"{envelope.trajectory_id}|{envelope.seq}"

    def start(self, key: str) -> RefusedRecord:
        return RefusedRecord()

    def apply(self, state: RefusedRecord, seen: Seen) -> RefusedRecord:
        body, envelope = seen.event.body, seen.event.envelope
        assert isinstance(body, InboxRefused)
        own = body.refused
        return RefusedRecord(
            envelope.trajectory_id,
            envelope.tenant,
            body.kind,
            own.source,
            own.seq,
            body.reason,
            envelope.seq,
            envelope.inbox_position,
            seen.record.timestamp_ms,
        )

    def writes(self, key: str, before: RefusedRecord | None, after: RefusedRecord) -> Iterator[Write]:
        yield Rank(["all", f"all:{after.tenant}"], _member(after), after.at_ms)

    def until_ms(self, key: str, state: RefusedRecord) -> int:
        return state.at_ms + KEPT_MS

    def forget(self, key: str, state: RefusedRecord) -> Iterator[Write]:
        yield Unrank(["all", f"all:{state.tenant}"], _member(state))


def record_of(member: str) -> RefusedRecord:
    """From a member of the sets. Raises ValueError for what is none."""
    return RefusedRecord(*orjson.loads(member))


def _member(one: RefusedRecord) -> str:
    return orjson.dumps(list(one)).decode()
