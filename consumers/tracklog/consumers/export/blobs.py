"""Blobs that events name, brought to the cold tier before the commit that holds these events."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Final

from tracklog.consumers.blob_copy import BlobName, LostBlob, copy_blobs
from tracklog.consumers.blob_names import blobs_of_event
from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.port import Record
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import BlobAltered, BlobError, BlobMissing, ColdUnavailable

__all__ = ["BroughtBlobs"]

KNOWN_MAX: Final = 100_000
"""Hashes remembered as brought, or as lost: 20 MB of them."""
FETCHERS: Final = 2
"""Blobs under way at once: each may have 64 MiB."""


class BroughtBlobs:
    """`target` None only looks whether the source has them. Counts what it met; `lost` are those not to be had."""

    def __init__(
        self, source: BlobStore, target: BlobStore | None, *, on_lost: Callable[[LostBlob], None] = lambda _: None
    ) -> None:
        self._source = source
        self._target = target
        self._on_lost = on_lost
        self._known: OrderedDict[str, None] = OrderedDict()
        self.new = self.held = self.lost = 0

    def bring(self, records: Sequence[Record]) -> None:
        """Raises ColdUnavailable when a store cannot be used: nothing was committed then."""
        names = list(self._unknown(records))
        if not names:
            return
        try:
            lost = self._checked(names) if self._target is None else self._copied(names, self._target)
        except BlobError as error:
            raise ColdUnavailable(f"blobs of events to export: {error.message}", hint=error.hint) from error
        for one in lost:
            self.lost += 1
            self._on_lost(one)
        for name in names:
            self._known[name.hash] = None
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def _unknown(self, records: Sequence[Record]) -> Iterator[BlobName]:
        met: set[str] = set()
        for record in records:
            event = decode_event(record.key, record.value, record.headers)
            for digest, media_type in blobs_of_event(event):
                if digest not in self._known and digest not in met:
                    met.add(digest)
                    place = f"event {event.envelope.seq} of {event.envelope.trajectory_id}"
                    yield BlobName(digest, media_type, f"{place} ({record.partition}:{record.offset})")

    def _copied(self, names: list[BlobName], target: BlobStore) -> Sequence[LostBlob]:
        copied = copy_blobs(names, self._source, target, _quietly, fetchers=FETCHERS)
        self.new += copied.new
        self.held += copied.held
        return copied.lost

    def _checked(self, names: list[BlobName]) -> Sequence[LostBlob]:
        lost = []
        for name in names:
            try:
                there = self._source.has(name.hash)
            except (BlobMissing, BlobAltered):
                there = False
            self.held += there
            if not there:
                lost.append(LostBlob(name.hash, name.named_by, f"blob {name.hash} is not in {self._source.url}"))
        return lost


def _quietly(what: str, total: int | None) -> nullcontext[Callable[[int], None]]:
    return nullcontext(lambda _: None)
