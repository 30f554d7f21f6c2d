"""The parts of the demo that no command has: what it runs on, and a copy of a log with one byte flipped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from tracklog.consumers.copying import TopicCopy
from tracklog.consumers.replay import BEGINNING, Filter, replay, resolve
from tracklog.consumers.timeline import Timeline
from tracklog.infra.log.port import Log, Record
from tracklog.infra.settings import Settings
from tracklog.schemas.errors import InputError
from tracklog.schemas.topics import TopicSpec, topic_specs

PREFIX: Final = "tracklog-demo"
CHOSEN: Final = "airline-17-3"
"""A run of the shipped ones: a passenger changes a flight in 20 turns."""
FLIPPED_BIT: Final = 0x01


class Flip(NamedTuple):
    """Which event of the copy is not what it was."""

    trajectory_id: str
    seq: int
    name: str
    partition: int
    offset: int
    topic: str


@contextmanager
def demo_home(directory: Path | None) -> Iterator[Path]:
    """A folder for everything of the embedded demo; without one given it is gone afterwards."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        yield directory.resolve()
        return
    with TemporaryDirectory(prefix="tracklog-demo-") as temporary:
        yield Path(temporary)


def embedded_flags(home: Path) -> Mapping[str, object]:
    """Settings that keep the demo to itself, whatever the environment says."""
    return {"home": str(home), "log": f"sqlite:{home}/log.db", "redis": "embedded", "blobs": str(home / "blobs")}


def stack_flags(log: str, redis: str, home: Path) -> Mapping[str, object]:
    """Settings for the local stack, which has one broker; topics and keys under a prefix of their own."""
    return {
        "log": log,
        "redis": redis,
        "blobs": str(home / "demo-blobs"),
        "prefix": PREFIX,
        "topics.replication_factor": 1,
        "topics.min_insync_replicas": 1,
    }


def choose(found: Timeline) -> int:
    """The seq to tamper with: the tool call in the middle of the run."""
    calls = [
        one.event.envelope.seq
        for one in found.entries
        if one.event is not None and one.accepted and one.event.name == "ToolIntent"
    ]
    if not calls:
        raise InputError(f"{found.state.trajectory_id!r} has no tool call to tamper with")
    return calls[len(calls) // 2]


def copy_with_flip(log: Log, settings: Settings, trajectory_id: str, seq: int, *, tag: str) -> Flip:
    """Copies the events topic to one of its own, with one bit of one byte of one event flipped on the way."""
    source, target = settings.topic_names.events, f"{settings.prefix}.flipped-{tag}"
    log.create([_scratch(settings, target)])
    copy, flip = TopicCopy(log, target), None
    for one in replay(log, source, resolve(log, source, frm=BEGINNING), Filter()):
        record = one.record
        if one.event is None:
            continue
        e = one.event.envelope
        if flip is None and (e.trajectory_id, e.seq) == (trajectory_id, seq):
            flip = Flip(trajectory_id, seq, one.event.name, record.partition, record.offset, target)
            record = _flipped(record)
        copy.append(record)
    copy.finish()
    if flip is None:
        raise InputError(f"event {seq} of {trajectory_id!r} is not in {source}")
    return flip


def _flipped(record: Record) -> Record:
    value = bytearray(record.value or b"")
    value[len(value) * 3 // 4] ^= FLIPPED_BIT
    return record._replace(value=bytes(value))


def _scratch(settings: Settings, name: str) -> TopicSpec:
    """One partition is enough: each trajectory is judged by itself."""
    wanted = settings.topics.model_dump() | {"partitions": 1}
    return replace(topic_specs(settings.topic_names, **wanted)[0], name=name)
