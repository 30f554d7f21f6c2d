"""What is folded record by record, whatever the verdict: trajectories and the agenda, which judge for themselves.

A `Processor` is what people plug in; this is below it, for what keeps heads, raw records or harmless ones too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from tracklog.infra.log.port import Record
from tracklog.processors.leaving import Leaving
from tracklog.processors.processor import Seen
from tracklog.processors.writes import Write

S = TypeVar("S")


class RecordProcessor(Protocol[S]):
    """One state per trajectory. `name` and `version` name its keys and its group: a changed `apply`, `load` or
    layout needs a new version, which is folded beside the old one from the beginning."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def reads(self) -> frozenset[str] | None:
        """Names of the event types it is shown; None for all, unknown ones too."""

    @property
    def leaving(self) -> Leaving[S] | None:
        """How states of ended trajectories leave the store; None: they stay."""

    def start(self, trajectory_id: str) -> S:
        """The state before the first record."""

    def apply(self, state: S, seen: Seen) -> S:
        """The state after one more record. Pure: no I/O, no clock, no randomness; `state` is not changed."""

    def load(self, trajectory_id: str, fields: Mapping[bytes, bytes]) -> S:
        """The state from what `writes` put into the trajectory's own fields (`writes.own_fields`)."""

    def writes(self, before: S | None, after: S, records: Sequence[Record]) -> Iterable[Write]:
        """What to write for a batch. `before` is what the store holds (None: nothing), `records` led to `after`."""
