"""Blobs that no record names any more, laid aside and later removed (DESIGN §7).

    old and named by nothing        laid aside: out of the way, but whoever asks for it still finds it
    aside, and named after all      taken back
    aside for as long as the grace  removed

A record counts as long as it is anywhere: in the log, in the cold tier, whatever its verdict. What it names counts,
and what that names: checkpoints, workspaces. Blobs are listed **before** the records are read, each topic to an end
that is asked for then. So a blob that was named when it was listed is kept; one that is put before its record is
protected by its age; and one that was put again in the moment in which it was laid aside is taken back by the next run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tracklog.consumers.blob_names import NAMES_OTHERS, blobs_of_blob, blobs_of_event, blobs_of_value
from tracklog.infra.blobs import BlobStore, StoredBlob
from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.schemas.codec import decode_event, decode_inbox, decode_ledger
from tracklog.schemas.errors import BlobAltered, BlobMissing, ForeignRecord, OffsetTrimmed, UnknownSchema
from tracklog.schemas.topics import Topics

__all__ = ["GRACE_S_MIN", "Collection", "collected", "planned"]

GRACE_S_MIN: Final = 86_400.0
"""Far longer than a process relies on a blob being young, and than a record may follow the blobs that it names."""
Progress = Callable[[int], None]


@dataclass(slots=True)
class Collection:
    """What is to be done, or was. `named`: blobs that records name, those that are missing included."""

    blobs: int = 0
    blobs_bytes: int = 0
    named: int = 0
    young: int = 0
    lay_aside: list[StoredBlob] = field(default_factory=list)
    take_back: list[StoredBlob] = field(default_factory=list)
    remove: list[StoredBlob] = field(default_factory=list)
    aside: int = 0
    """Laid aside earlier, and not for long enough."""

    def as_map(self) -> dict[str, object]:
        """For JSON; blobs by their hashes."""
        done = {"lay_aside": self.lay_aside, "take_back": self.take_back, "remove": self.remove}
        return {
            "blobs": self.blobs,
            "bytes": self.blobs_bytes,
            "named": self.named,
            "young": self.young,
            "aside": self.aside,
            **{name: [one.hash for one in found] for name, found in done.items()},
            **{f"{name}_bytes": sum(one.size_bytes for one in found) for name, found in done.items()},
        }


def planned(
    log: Log, topics: Topics, blobs: BlobStore, *, grace_s: float, progress: Progress = lambda _: None
) -> Collection:
    """Reads all records of the log, in the cold tier too, and says what may go. Changes nothing. Blocks.

    Raises OffsetTrimmed for a log whose beginning is nowhere, UnknownSchema for a record of which nobody here can tell
    what it names, BlobError.
    """
    now_us = blobs.now_us()
    lying, aside = list(blobs.stored()), list(blobs.stored(aside=True))
    named = _named(log, topics, blobs, progress)
    found = Collection(len(lying), sum(one.size_bytes for one in lying), len(named))
    before_us = now_us - round(grace_s * 1_000_000)
    for one in lying:
        if bytes.fromhex(one.hash) in named:
            continue
        if one.put_us > before_us:
            found.young += 1
        else:
            found.lay_aside.append(one)
    for one in aside:
        if bytes.fromhex(one.hash) in named:
            found.take_back.append(one)
        elif one.put_us > before_us:
            found.aside += 1
        else:
            found.remove.append(one)
    return found


def collected(blobs: BlobStore, plan: Collection) -> None:
    """Does what was planned; whatever ends it half way leaves the rest for the next run. Raises BlobError."""
    for one in plan.take_back:
        blobs.take_back(one.hash)
    for one in plan.remove:
        blobs.remove_aside(one.hash)
    for one in plan.lay_aside:
        blobs.lay_aside(one.hash)


def _named(log: Log, topics: Topics, blobs: BlobStore, progress: Progress) -> set[bytes]:
    """The hashes of all blobs that must stay."""
    named: set[bytes] = set()
    todo: list[tuple[str, str]] = []
    for digest, media_type in _of_records(log, topics, progress):
        if bytes.fromhex(digest) not in named:
            named.add(bytes.fromhex(digest))
            if media_type in NAMES_OTHERS:
                todo.append((digest, media_type))
    while todo:
        digest, media_type = todo.pop()
        for inner, kind in _of_blob(blobs, digest, media_type):
            if bytes.fromhex(inner) not in named:
                named.add(bytes.fromhex(inner))
                if kind in NAMES_OTHERS:
                    todo.append((inner, kind))
    return named


def _of_blob(blobs: BlobStore, digest: str, media_type: str) -> list[tuple[str, str]]:
    """One that is lost or broken names nothing that anybody could read."""
    try:
        return list(blobs_of_blob(media_type, blobs.get(digest)))
    except (BlobMissing, BlobAltered):
        return []


def _of_records(log: Log, topics: Topics, progress: Progress) -> Iterator[tuple[str, str]]:
    for topic in (topics.events, topics.inbox, topics.attempts):
        for partition in range(log.partition_count(topic)):
            bounds = log.bounds(topic, partition)
            if topic == topics.events and bounds.first > 0:
                raise OffsetTrimmed(
                    f"{topic}, partition {partition} begins at offset {bounds.first}: what was trimmed may be kept"
                    " somewhere, and would lose its blobs",
                    hint="set cold.url to the cold tier of this log",
                )
            for record in read_range(log, topic, partition, bounds.first, bounds.end, bounds=bounds):
                progress(1)
                yield from _of_record(topics, record)


def _of_record(topics: Topics, record: Record) -> Iterator[tuple[str, str]]:
    try:
        if record.topic == topics.events:
            event = decode_event(record.key, record.value, record.headers)
            known, name, names = event.body is not None, event.name, blobs_of_event(event)
        else:
            decode = decode_inbox if record.topic == topics.inbox else decode_ledger
            read = decode(record.key, record.value, record.headers)
            known, name, names = read.body is not None, read.name, blobs_of_value(read.body)
    except ForeignRecord:
        return  # nobody's: no reader takes it
    if not known:
        raise UnknownSchema(
            f"{record.topic}, partition {record.partition}, offset {record.offset}: a {name} that is not known here may"
            " name blobs",
            hint="collect them with the newest Tracklog that writes to this log",
        )
    yield from names
