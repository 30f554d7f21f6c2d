"""One followed trajectory: its records as they came, and what folding them gave."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from tracklog.infra.log.port import Position, Record
from tracklog.producers.history import Accepted
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.fold import fold
from tracklog.schemas.head import Verdict
from tracklog.schemas.state import State

KEPT_RECORDS_MAX: Final = 512
"""Records kept unfolded; above it they are folded at once, so that a long trajectory takes no memory."""


class Track:
    """Folds on demand. `keep` is called by the reading thread, everything else by the event loop's."""

    def __init__(self, state: State, window: int) -> None:
        self.state = state
        self._window = window
        self._accepted: dict[int, bytes] = {}
        self._kept: deque[Record] = deque()
        self._lock = threading.Lock()
        self._history: list[Accepted] | None = None

    def record(self) -> None:
        """Keeps the accepted events too, from the first one on; before anything is folded."""
        self._history = []

    @property
    def recording(self) -> bool:
        return self._history is not None

    def history(self) -> list[Accepted]:
        """The accepted events up to the state, of a track that records."""
        with self._lock:
            return list(self._history or ())

    def stop_recording(self) -> None:
        """Lets go of the events: only a trajectory that is being opened takes memory for them."""
        with self._lock:
            self._history = None

    def keep(self, record: Record) -> None:
        """Takes in the next record of the trajectory, in log order."""
        self._kept.append(record)
        if len(self._kept) > KEPT_RECORDS_MAX:
            self.fold()

    def fold(self) -> None:
        """Folds what was kept."""
        with self._lock:
            while self._kept:
                self._fold_one(self._kept.popleft())

    def _fold_one(self, record: Record) -> None:
        try:
            event = decode_event(record.key, record.value, record.headers)
        except ForeignRecord:
            return  # it is nobody's event; whoever owns the partition quarantines it
        self.state, judgement = fold(self.state, event)
        if judgement.verdict is Verdict.ACCEPTED:
            self._accepted[event.envelope.seq] = event.hash
            if len(self._accepted) > self._window:
                del self._accepted[next(iter(self._accepted))]
            if self._history is not None:
                self._history.append((event, Position(record.partition, record.offset, record.timestamp_ms)))

    def accepted(self, seq: int, digest: bytes) -> bool:
        """Whether this very event was accepted on the way, whatever the head is now (DESIGN §8, 2)."""
        return self._accepted.get(seq) == digest

    def excluded(self, seq: int, epoch: int, digest: bytes) -> bool:
        """Whether this event can never be accepted any more: its epoch is over, or its seq is taken."""
        head = self.state.head
        return not self.accepted(seq, digest) and (head.epoch > epoch or head.seq >= seq)
