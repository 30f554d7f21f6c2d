"""One followed trajectory: its records as they came, and what folding them gave."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, NamedTuple

from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.port import Position, Record
from tracklog.producers.history import Accepted
from tracklog.producers.shortcut import Shortcut, find_shortcut
from tracklog.schemas.codec import HEADER_HASH, Encoded, Event, decode_event, written_event
from tracklog.schemas.errors import ForeignRecord
from tracklog.schemas.events import EventBody
from tracklog.schemas.fold import fold
from tracklog.schemas.head import Verdict
from tracklog.schemas.stamp import Stamp
from tracklog.schemas.state import State

KEPT_RECORDS_MAX: Final = 512
"""Records kept unfolded; above it they are folded at once, so that a long trajectory takes no memory."""
OWN_EVENTS_MAX: Final = 64
"""Events of one's own that wait to be read back, the newest ones: about what a turn appends. Others are decoded."""


class Own(NamedTuple):
    """An event as its writer made it."""

    stamp: Stamp
    tenant: str
    body: EventBody
    encoded: Encoded


class Track:
    """Folds on demand. `keep` is called by the reading thread, everything else by the event loop's."""

    def __init__(self, state: State, window: int) -> None:
        self.state = state
        self._window = window
        self._accepted: dict[int, bytes] = {}
        self._kept: deque[Record] = deque()
        self._own: dict[bytes, Own] = {}
        self._lock = threading.Lock()
        self._history: list[Accepted] | None = None
        self._passed: dict[int, Record] = {}
        """Accepted, not decoded: what a shortcut left out of the history."""
        self.shortcut: Shortcut | None = None
        """The way that was taken to this state, of a track that records."""

    def record(self) -> None:
        """Keeps the accepted events too, from the first one on; before anything is folded."""
        self._history = []

    @property
    def recording(self) -> bool:
        return self._history is not None

    @property
    def begins(self) -> bool:
        """Whether its first event is known: it was folded from it on, or it is among what is kept."""
        with self._lock:
            return self.state.events > 0 or any(_is_first(record) for record in self._kept)

    def history(self) -> list[Accepted]:
        """The accepted events up to the state, of a track that records; without what a shortcut left out."""
        with self._lock:
            return list(self._history or ())

    def drain(self) -> list[Accepted]:
        """The accepted events since this was last called, of a track that records: it keeps them no longer."""
        with self._lock:
            news = self._history or []
            self._history = []
            return news

    def complete(self) -> None:
        """Puts into the history what a shortcut left out."""
        with self._lock:
            passed, self._passed, self.shortcut = self._passed, {}, None
            found = [(decode_event(one.key, one.value, one.headers), _position(one)) for one in passed.values()]
            self._history = sorted([*found, *(self._history or ())], key=_seq)

    def stop_recording(self) -> None:
        """Lets go of the events: only a trajectory that is being opened takes memory for them."""
        with self._lock:
            self._history, self._passed, self.shortcut = None, {}, None

    def keep(self, record: Record) -> None:
        """Takes in the next record of the trajectory, in log order."""
        self._kept.append(record)
        if len(self._kept) > KEPT_RECORDS_MAX and self._history is None:
            self.fold()

    def wrote(self, own: Own) -> None:
        """An event that this process appends: when just these bytes are read, they need not be decoded."""
        with self._lock:
            self._own[own.encoded.hash] = own
            if len(self._own) > OWN_EVENTS_MAX:
                del self._own[next(iter(self._own))]

    def fold(self) -> None:
        """Folds what was kept."""
        with self._lock:
            while self._kept:
                self._fold_one(self._kept.popleft())

    def open(self, blobs: BlobStore | None) -> None:
        """Folds what was kept, all of a trajectory, of a track that records; from a checkpoint on when there is one.

        Blocks. Raises BlobError.
        """
        with self._lock:
            if blobs is not None and not self._history and self.state.events == 0:
                self._take_shortcut(find_shortcut(self.state.trajectory_id, list(self._kept), blobs))
        self.fold()

    def _take_shortcut(self, found: Shortcut | None) -> None:
        if found is None:
            return
        kept = [self._kept.popleft() for _ in range(found.at + 1)]
        self.state, self.shortcut, self._history = found.state, found, []
        self._passed = {seq: kept[one.at] for seq, one in enumerate(found.passed)}
        for record in [self._passed.pop(seq) for seq in found.needed]:
            self._history.append((decode_event(record.key, record.value, record.headers), _position(record)))
        last = len(found.passed)
        self._accepted = {seq: found.passed[seq].hash for seq in range(max(0, last - self._window), last)}

    def _fold_one(self, record: Record) -> None:
        event = self._read(record)
        if event is None:
            return  # it is nobody's event; whoever owns the partition quarantines it
        self.state, judgement = fold(self.state, event)
        if judgement.verdict is Verdict.ACCEPTED:
            self._accepted[event.envelope.seq] = event.hash
            if len(self._accepted) > self._window:
                del self._accepted[next(iter(self._accepted))]
            if self._history is not None:
                self._history.append((event, _position(record)))

    def _read(self, record: Record) -> Event | None:
        if self._own:
            own = self._own.pop(dict(record.headers).get(HEADER_HASH, b""), None)
            if own is not None and (record.value, record.headers) == own.encoded[:2]:
                return written_event(*own)
        try:
            return decode_event(record.key, record.value, record.headers)
        except ForeignRecord:
            return None

    def accepted(self, seq: int, digest: bytes) -> bool:
        """Whether this very event was accepted on the way, whatever the head is now (DESIGN §8, 2)."""
        return self._accepted.get(seq) == digest

    def excluded(self, seq: int, epoch: int, digest: bytes) -> bool:
        """Whether this event can never be accepted any more: its epoch is over, or its seq is taken."""
        head = self.state.head
        return not self.accepted(seq, digest) and (head.epoch > epoch or head.seq >= seq)


def _is_first(record: Record) -> bool:
    try:
        return decode_event(record.key, record.value, record.headers).envelope.seq == 0
    except ForeignRecord:
        return False


def _position(record: Record) -> Position:
    return Position(record.partition, record.offset, record.timestamp_ms)


def _seq(one: Accepted) -> int:
    return one[0].envelope.seq
