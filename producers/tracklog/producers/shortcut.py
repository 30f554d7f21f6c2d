"""Opening from a checkpoint without going through all that came before it (DESIGN §7).

Every record of the trajectory is still judged, in order, so the log's word holds as ever. But of a record that fits
only the envelope is read (`skim`): the bodies before the checkpoint are decoded where something rests on them, and
the state comes from the checkpoint. It is taken when the head that was come to by judging has the very hash, seq and
epoch that the checkpoint covers: hashes hang on each other, so up to there the accepted events are the same.

Nothing is gained by force: whatever is not as it should be, a fault, a blob that is missing, an envelope that is not as
writers write them, and the whole record is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.port import Record
from tracklog.producers.snapshot import Loaded, Recall, load_snapshot
from tracklog.schemas import catalog
from tracklog.schemas import events as ev
from tracklog.schemas.chain import event_hash
from tracklog.schemas.codec import HEADER_HASH, Event, decode_event, split_frame
from tracklog.schemas.errors import BlobAltered, BlobMissing, ForeignRecord
from tracklog.schemas.head import EMPTY_HEAD, Verdict, advance, judge
from tracklog.schemas.limits import ACCEPTED_WINDOW
from tracklog.schemas.skim import Skim
from tracklog.schemas.state import State

__all__ = ["Shortcut", "find_shortcut"]

RECORDS_MIN: Final = 64
"""Below this reading everything is as quick."""
OWNERSHIP: Final = frozenset({"OwnershipClaimed", "OwnershipReleased"})
READ: Final = OWNERSHIP | {"TaskStarted", "DriftCrossed", "CheckpointTaken", "CancelRequested"}
"""Decoded wherever they stand: what opening a session looks for in all of a record."""


class Passed(NamedTuple):
    """An accepted record. `at`: its index among those of the trajectory; `read`: whether it is to be decoded."""

    at: int
    hash: bytes
    read: bool


@dataclass(frozen=True, slots=True)
class Shortcut:
    """`state` is that after record `at`, `passed` are the accepted ones up to it by their seq."""

    state: State
    at: int
    passed: Sequence[Passed]
    recall: Recall

    @property
    def needed(self) -> list[int]:
        """Seqs of the passed events that opening a session needs."""
        calls = {call.seq for call in self.state.calls.values()}
        until = self.recall.until
        return [seq for seq, one in enumerate(self.passed) if one.read or seq > until or seq in calls]


def find_shortcut(trajectory_id: str, records: Sequence[Record], blobs: BlobStore) -> Shortcut | None:
    """Where to begin to fold these records, which are all of a trajectory; None to begin with the first.

    Blocks. Raises BlobError when the store does not answer.
    """
    if len(records) < RECORDS_MIN:
        return None
    judged = _Judged(trajectory_id)
    if not all(judged.take(at, record) for at, record in enumerate(records)):
        return None
    for place in reversed(judged.checkpoints):
        event = _decode(records[judged.passed[place].at])
        if event is None or not isinstance(event.body, ev.CheckpointTaken):
            return None
        try:
            loaded = load_snapshot(blobs, event.body.state, trajectory_id)
        except (BlobMissing, BlobAltered):
            return None  # who goes through everything says so
        if loaded.recall is not None:
            return judged.at(event.body, loaded, loaded.recall)
    return None


class _Judged:
    """The accepted records of one trajectory, by seq."""

    def __init__(self, trajectory_id: str) -> None:
        self.passed: list[Passed] = []
        self.checkpoints: list[int] = []
        self._key = trajectory_id.encode()
        self._trajectory_id = trajectory_id
        self._skim: Skim | None = None
        self._head = EMPTY_HEAD
        self._hash = EMPTY_HEAD.hash
        self._epochs: list[int] = []
        self._owners: dict[int, bytes | None] = {}

    def take(self, at: int, record: Record) -> bool:
        """Judges a record; False when it is one that must not be passed over."""
        skim, value = self._skim, record.value
        if skim is not None and value is not None and record.key == self._key:
            headers = dict(record.headers)
            try:
                fingerprint, payload = split_frame(value, headers)
            except ForeignRecord:
                return False
            schema = catalog.by_fingerprint().get(fingerprint)
            epoch = self._head.epoch
            if (
                schema is not None
                and schema.name not in OWNERSHIP
                and skim.fits(payload, seq=len(self.passed), epoch=epoch, prev_hash=self._hash)
            ):
                digest = event_hash(fingerprint, payload)
                if headers.get(HEADER_HASH) == digest and digest not in self._head.lost:
                    self._pass(at, digest, schema.name, read=schema.name in READ)
                    return True
        return self._take_whole(at, record)

    def _take_whole(self, at: int, record: Record) -> bool:
        event = _decode(record)
        if event is None:
            return True  # nobody's event
        head = self._head._replace(
            seq=len(self.passed) - 1,
            hash=self._hash,
            recent=tuple(one.hash for one in self.passed[-ACCEPTED_WINDOW:]),
        )
        judgement = judge(head, event)
        self._head = advance(head, event, judgement)
        if judgement.verdict is Verdict.ACCEPTED:
            self._pass(at, event.hash, event.name, read=True)
        self._skim = Skim(self._trajectory_id, event.envelope.tenant) if self._head.epoch > 0 else None
        return not judgement.fault

    def _pass(self, at: int, digest: bytes, name: str, *, read: bool) -> None:
        if name == "CheckpointTaken":
            self.checkpoints.append(len(self.passed))
        self._hash = digest
        self.passed.append(Passed(at, digest, read))
        self._epochs.append(self._head.epoch)
        self._owners.setdefault(self._head.epoch, self._head.owner)

    def at(self, body: ev.CheckpointTaken, loaded: Loaded, recall: Recall) -> Shortcut | None:
        """The state that was come to at what the checkpoint covers; None when it is another one."""
        covered = body.seq_covered
        if covered >= len(self.passed) or recall.until > covered:
            return None
        digest, epoch, state = self.passed[covered].hash, self._epochs[covered], loaded.state
        if (digest, epoch) != (body.head_hash, body.epoch_covered) or state.fault is not None:
            return None
        recent = tuple(one.hash for one in self.passed[max(0, covered - ACCEPTED_WINDOW + 1) : covered + 1])
        mine = (epoch, covered, digest, self._owners[epoch], recent)
        if mine != (state.head.epoch, state.head.seq, state.head.hash, state.head.owner, state.head.recent):
            return None
        return Shortcut(state, self.passed[covered].at, self.passed[: covered + 1], recall)


def _decode(record: Record) -> Event | None:
    try:
        return decode_event(record.key, record.value, record.headers)
    except ForeignRecord:
        return None
