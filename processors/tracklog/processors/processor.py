"""The processor: what anyone can plug into the events (DESIGN §10, docs/processors.md).

    class Failures(Processor[int]):
        name = "failures"
        version = 1
        reads = frozenset({"ToolResult"})
        layout = {"by-trajectory": Shape.SORTED_SET}

        def start(self, key: str) -> int:
            return 0

        def apply(self, state: int, seen: Seen) -> int:
            return state + (seen.event.body.status is Status.FAILED)

        def writes(self, key: str, before: int | None, after: int) -> Iterator[Write]:
            yield Rank(["by-trajectory"], key, after)

It holds no client and keeps nothing between calls: all it knows is the state it is handed. So its state can be made
again from the log at any time, is the same wherever that is done, and survives whatever its process does not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import TypeAdapter

from tracklog.infra.log.port import Record
from tracklog.processors.writes import Write
from tracklog.schemas.codec import Event

__all__ = ["Processor", "Seen", "Shape"]

S = TypeVar("S")


class Seen(NamedTuple):
    """One record: as decoded, and as the log holds it (offset, append time in milliseconds, raw bytes)."""

    event: Event
    record: Record


class Shape(StrEnum):
    """What a key in the store can be, and the writes that go with it."""

    HASH = "hash"
    """SetFields, Unset"""
    COUNTERS = "counters"
    """Add, Unset"""
    SORTED_SET = "sorted set"
    """Rank, Unrank"""
    STREAM = "stream"
    """Push"""
    JSON = "json"
    """PutJson"""


class Processor(ABC, Generic[S]):
    """One state per key. It is shown accepted events only, those of a trajectory in their order.

    `name` and `version` name its keys and its group: a changed `key`, `apply`, `writes`, snapshot or layout needs a
    new version, which is folded beside the old one from the beginning. `reads` are the names of the event types it
    is shown, None for all, those unknown here too (their `body` is None). `layout` names its keys in the store: a key
    is one of these names, or one of them, a colon and any text.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    reads: ClassVar[frozenset[str] | None] = None
    layout: ClassVar[Mapping[str, Shape]] = {}

    def key(self, seen: Seen) -> str | None:
        """What the state is kept by; None when the event is not for this processor.

        By anything but the trajectory, totals are kept per partition and added up on reading: `apply` meets the
        events of different trajectories in no promised order.
        """
        return seen.event.envelope.trajectory_id

    @abstractmethod
    def start(self, key: str) -> S:
        """The state before the first event."""

    @abstractmethod
    def apply(self, state: S, seen: Seen) -> S:
        """The state after one more event, of the same type. Pure: no I/O, no clock, no randomness, and `state` is
        not changed. What it raises stops this trajectory for this processor, until `tracklog projections retry`."""

    def snapshot(self, state: S) -> bytes:
        """The state as the store keeps it: JSON, by its type."""
        return _adapter(type(state)).dump_json(state)

    def restore(self, key: str, data: bytes) -> S:
        """The inverse of `snapshot`."""
        restored: S = _adapter(type(self.start(key))).validate_json(data)
        return restored

    def writes(self, key: str, before: S | None, after: S) -> Iterable[Write]:
        """What readers are to find of a state, written in one step with it. `before` is what the store holds: None
        for nothing. Events between the two may have been one or many."""
        return ()

    def emit(self, key: str, after: S, seen: Seen) -> Iterable[Write]:
        """What one event adds to what readers find (`Push`, `Add`), written in the same step. `after` is the state
        with it."""
        return ()

    def until_ms(self, key: str, state: S) -> int | None:
        """When the state is to leave, in milliseconds since 1970; None: never. Time is the log's: it leaves with the
        first event of its partition that was appended then or later, so it is the same whenever that is folded."""
        return None

    def forget(self, key: str, state: S) -> Iterable[Write]:
        """What a state that leaves takes along of what readers find (`Remove`, `Unrank`, `Unset`)."""
        return ()


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
