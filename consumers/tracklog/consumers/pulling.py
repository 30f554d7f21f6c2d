"""Bringing one trajectory into a log of its own: its records as they are, its origins', and the blobs they name.

    events, inbox, attempts   every record under its key, whatever its verdict, in the order it has
    origins                   the same of each trajectory that it was forked from
    blobs                     before the records that name them, each checked against its hash

The topics of the target say which log they were pulled from, so no second one is mixed in. Pulled again, only what is
new is added: what is there must be how the source begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from tracklog.consumers.blob_copy import BlobName, CopiedBlobs, Progress, copy_blobs
from tracklog.consumers.blob_names import blobs_of_event, blobs_of_value
from tracklog.consumers.copying import TopicCopy, without_provenance
from tracklog.consumers.timeline import Timeline, records_of, timeline
from tracklog.consumers.verify import Verification
from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log, Record, TopicInfo
from tracklog.infra.log.trimmed import check_beginning
from tracklog.producers.lineage import ORIGINS_MAX, origin_of
from tracklog.schemas.audit_report import Finding
from tracklog.schemas.codec import decode_inbox, decode_ledger
from tracklog.schemas.errors import ForeignRecord, InputError, LogError, TopicMissing
from tracklog.schemas.limits import MESSAGE_BYTES_MAX
from tracklog.schemas.topics import Topics, TopicSpec, topic_specs

__all__ = ["Pulled", "pull"]

PULLED_FROM: Final = "tracklog.pulled-from"
"""Among the settings of a target's topics: cluster and topic id of the events it was pulled from."""


class Pulled(NamedTuple):
    """`trajectories`: the one asked for, and before it its origins."""

    trajectories: tuple[str, ...]
    records_new: int
    records_held: int
    blobs: CopiedBlobs
    faults: Mapping[str, tuple[Finding, ...]]

    @property
    def whole(self) -> bool:
        return not self.blobs.lost and not self.faults

    @property
    def nothing_new(self) -> bool:
        return not self.records_new and not self.blobs.new


class _Part(NamedTuple):
    """The records of one trajectory: per topic, and its events folded."""

    trajectory_id: str
    records: Mapping[str, Sequence[Record]]
    events: Timeline


def pull(
    source: Log,
    target: Log,
    topics: Topics,
    trajectory_id: str,
    *,
    blobs: tuple[BlobStore, BlobStore],
    progress: Progress,
) -> Pulled:
    """Brings a trajectory from one log to another one, blobs from the first store to the second. Blocks.

    What cannot be had of the blobs is named, and the rest is brought. Raises InputError for a trajectory or an origin
    that is not in the source, for a target that holds other records than pulled ones of this source, and for one in
    which a trajectory goes on otherwise; LogError when what was written reads otherwise; AppendError, BlobError.
    """
    known = _prepared(source, target, topics)
    parts = _lineage(source, topics, trajectory_id, progress)
    new = {part.trajectory_id: _missing(target, part) if known else part.records for part in parts}
    if not known:
        target.create(_specs(source, topics))
    copied = copy_blobs([name for part in parts for name in _named(part, topics)], *blobs, progress)
    added = sum(len(records) for records in _all(new))
    with progress("writing records", added) as advance:
        for part in parts:
            for topic in (topics.inbox, topics.attempts, topics.events):
                records = new[part.trajectory_id][topic]
                advance(TopicCopy(target, topic, force=True).append_all(records))
    faults = {part.trajectory_id: found for part in parts if (found := _checked(target, topics, part))}
    held = sum(len(records) for part in parts for records in part.records.values()) - added
    return Pulled(tuple(part.trajectory_id for part in parts), added, held, copied, faults)


def _all(new: Mapping[str, Mapping[str, Sequence[Record]]]) -> Iterator[Sequence[Record]]:
    return (records for per_topic in new.values() for records in per_topic.values())


def _prepared(source: Log, target: Log, topics: Topics) -> bool:
    """Whether the target was pulled into before; False when it is empty. Raises InputError for any other."""
    origin = _identity(source.describe(topics.events))
    try:
        found = target.describe(topics.events)
    except TopicMissing:
        return False
    if _identity(found) == origin:
        raise InputError(f"{target.url} is the log that is pulled from", hint="name another file")
    stated = found.spec.config.get(PULLED_FROM)
    if stated != origin:
        whose = "records of its own" if stated is None else "what was pulled from another log"
        raise InputError(f"{target.url} holds {whose} under {topics.events}", hint="name another file")
    return True


def _identity(info: TopicInfo) -> str:
    return f"{info.cluster_id}/{info.topic_id}"


def _specs(source: Log, topics: Topics) -> list[TopicSpec]:
    """As many partitions as the source has, so that a record stays in its own."""
    found = source.describe(topics.events)
    specs = topic_specs(
        topics,
        partitions=found.spec.partitions,
        replication_factor=1,
        min_insync_replicas=1,
        max_message_bytes=MESSAGE_BYTES_MAX,
    )
    return [replace(spec, config={**spec.config, PULLED_FROM: _identity(found)}) for spec in specs]


def _lineage(source: Log, topics: Topics, trajectory_id: str, progress: Progress) -> list[_Part]:
    """The trajectory last, before it what it was forked from."""
    parts: list[_Part] = []
    wanted: str | None = trajectory_id
    while wanted is not None:
        if len(parts) > ORIGINS_MAX:
            raise InputError(f"trajectory {trajectory_id!r} has more than {ORIGINS_MAX} origins, one after another")
        part = _read(source, topics, wanted, progress)
        if all(entry.event is None for entry in part.events.entries):
            check_beginning(source, topics.events, wanted)
            hint = f"{parts[-1].trajectory_id!r} was forked from it" if parts else "see: tracklog list"
            raise InputError(f"no trajectory {wanted!r} in {topics.events}", hint=hint)
        parts.append(part)
        origin = origin_of([one.event for one in part.events.entries if one.event is not None and one.accepted])
        wanted = None if origin is None else origin.trajectory_id
    return parts[::-1]


def _read(source: Log, topics: Topics, trajectory_id: str, progress: Progress) -> _Part:
    records = {}
    for topic in (topics.events, topics.inbox, topics.attempts):
        bounds = source.bounds(topic, partition_of(trajectory_id.encode(), source.partition_count(topic)))
        with progress(f"reading {topic} for {trajectory_id}", bounds.end - bounds.first) as advance:
            records[topic] = list(records_of(source, topic, trajectory_id, advance))
    return _Part(trajectory_id, records, timeline(trajectory_id, records[topics.events]))


def _missing(target: Log, part: _Part) -> dict[str, Sequence[Record]]:
    """Per topic what the target does not have. Raises InputError when it has something else."""
    out: dict[str, Sequence[Record]] = {}
    for topic, records in part.records.items():
        held = [_content(record) for record in records_of(target, topic, part.trajectory_id)]
        if held != [_content(record) for record in records[: len(held)]]:
            raise InputError(
                f"{part.trajectory_id} has records in {topic} of {target.url} that it does not have where it is"
                " pulled from",
                hint="a pulled trajectory that went on by itself is another one: pull it into another file",
            )
        out[topic] = records[len(held) :]
    return out


def _content(record: Record) -> tuple[bytes | None, object]:
    return record.value, without_provenance(record.headers)


def _named(part: _Part, topics: Topics) -> Iterator[BlobName]:
    """Every blob that its records name. A record that cannot be read names nothing."""
    own = part.trajectory_id
    for entry in part.events.entries:
        if entry.event is not None:
            by = f"{own}, event {entry.event.envelope.seq} ({entry.event.name})"
            yield from (BlobName(*one, by) for one in blobs_of_event(entry.event))
    for topic, decode in ((topics.inbox, decode_inbox), (topics.attempts, decode_ledger)):
        for record in part.records[topic]:
            with suppress(ForeignRecord):
                read = decode(record.key, record.value, record.headers)
                by = f"{own}, {topic} {record.partition}:{record.offset} ({read.name})"
                yield from (BlobName(*one, by) for one in blobs_of_value(read.body))


def _checked(target: Log, topics: Topics, part: _Part) -> tuple[Finding, ...]:
    """Reads the trajectory from the target as `verify` does. Raises LogError when it is not the one that was read."""
    reports = list(Verification(target, topics.events, only=part.trajectory_id).reports())
    head = part.events.state.head
    if [(report.seq, report.hash) for report in reports] != [(head.seq, head.hash)]:
        raise LogError(
            f"{part.trajectory_id} reads otherwise from {target.url} than from where it was pulled",
            hint="pull it into a new file",
        )
    return reports[0].faults
