"""The processor protocol: what it reads, a pure `apply`, and how its state is written (DESIGN §10).

A processor is a plain class. It holds no client and keeps nothing between calls: all it knows of a trajectory is
the state it is handed, so its state can be rebuilt from the log at any time and is the same wherever it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from tracklog.infra.log.port import Record
from tracklog.processors.writes import Write
from tracklog.schemas.codec import Event

S = TypeVar("S")


class Seen(NamedTuple):
    """One record of a trajectory: as decoded, and as the log holds it (offset, append time, raw bytes).

    It may be anything that decodes: a retry, a former owner's, a forged one. The verdict is the fold's to give.
    """

    event: Event
    record: Record


class Processor(Protocol[S]):
    """One state per trajectory. `name` and `version` name its keys and its group: a changed `apply`, `load` or
    layout needs a new version, which is folded beside the old one from the beginning."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def reads(self) -> frozenset[str] | None:
        """Names of the event types it is shown; None for all, unknown ones too."""

    def start(self, trajectory_id: str) -> S:
        """The state before the first record."""

    def apply(self, state: S, seen: Seen) -> S:
        """The state after one more record. Pure: no I/O, no clock, no randomness; `state` is not changed."""

    def load(self, trajectory_id: str, fields: Mapping[bytes, bytes]) -> S:
        """The state from what `writes` put into the trajectory's own fields (`writes.own_fields`)."""

    def writes(self, before: S | None, after: S, records: Sequence[Record]) -> Iterable[Write]:
        """What to write for a batch. `before` is what the store holds (None: nothing), `records` led to `after`."""
