"""A log of many real trajectories: the recorded airline runs, imported once and copied under other ids.

A copy has the bodies of its original, byte for byte, under envelopes of its own: ids, causes, hashes and chain are as
if it had been written so.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any, NamedTuple

import fastavro

from tracklog.consumers.importing import import_into
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.infra.settings_sections import Settings
from tracklog.producers.data import AIRLINE, AIRLINE_MODEL, shipped_file
from tracklog.producers.importers.chat import parse_chat_jsonl
from tracklog.schemas import catalog
from tracklog.schemas.catalog import Kind
from tracklog.schemas.chain import event_hash, event_id
from tracklog.schemas.codec import HEADER_HASH, SINGLE_OBJECT_MARK, Headers, split_frame
from tracklog.schemas.stamp import Stamp, envelope_bytes, trajectory_prefix
from tracklog.schemas.values import ZERO_HASH, InboxId, Ref

FLUSH_EVERY = 20_000
FLUSH_S = 120.0


class Original(NamedTuple):
    """One event of a recorded run: what a copy of it takes over."""

    headers: Headers
    fingerprint: bytes
    envelope: dict[str, Any]
    body: bytes


def originals(settings: Settings) -> dict[str, list[Original]]:
    """The events of the recorded runs, by trajectory, in order."""
    log = open_log("memory:")
    log.create(settings.topic_specs())
    memory = settings.model_copy(update={"log": settings.log.model_copy(update={"url": "memory:"})})
    lines = shipped_file(AIRLINE).splitlines(keepends=True)
    import_into(log, memory, parse_chat_jsonl(lines, AIRLINE, model=AIRLINE_MODEL))
    found: dict[str, list[Original]] = {}
    topic = settings.topic_names.events
    for partition in range(log.partition_count(topic)):
        first, end = log.bounds(topic, partition)
        for record in read_range(log, topic, partition, first, end):
            fingerprint, payload = split_frame(record.value or b"", dict(record.headers))
            source = BytesIO(payload)
            envelope: Any = fastavro.schemaless_reader(source, catalog.parsed_envelope(Kind.EVENTS), None)
            kept = tuple((name, value or b"") for name, value in record.headers if name != HEADER_HASH)
            found.setdefault(envelope["trajectory_id"], []).append(
                Original(kept, fingerprint, envelope, payload[source.tell() :])
            )
    return found


def copies(original: list[Original], trajectory_id: str) -> Iterator[tuple[bytes, Headers]]:
    """Value and headers of each event of a copy under another id."""
    prefix, previous = trajectory_prefix(trajectory_id, original[0].envelope["tenant"]), ZERO_HASH
    for headers, fingerprint, envelope, body in original:
        inbox = envelope["inbox_id"]
        stamp = Stamp(
            trajectory_id,
            prefix,
            envelope["seq"],
            envelope["epoch"],
            envelope["turn"],
            envelope["lamport"],
            envelope["recorded_at"],
            previous,
            tuple(Ref(trajectory_id=trajectory_id, seq=one["seq"]) for one in envelope["causes"]),
            None if inbox is None else InboxId(source=inbox["source"], seq=inbox["seq"]),
            envelope["inbox_position"],
            envelope["ext"],
        )
        identity = event_id(trajectory_id, envelope["epoch"], envelope["seq"], body)
        payload = envelope_bytes(stamp, identity) + body
        previous = event_hash(fingerprint, payload)
        yield SINGLE_OBJECT_MARK + fingerprint + payload, (*headers, (HEADER_HASH, previous))


def fill(log: Log, settings: Settings, events: int) -> int:
    """Appends copies until there are so many events or a few more; returns how many, and raises if any failed."""
    log.create(settings.topic_specs())
    topic, written = settings.topic_names.events, 0
    failed: list[object] = []
    runs = originals(settings)
    for number in range(events):
        for name, original in runs.items():
            trajectory_id = f"{name}-{number}"
            for value, headers in copies(original, trajectory_id):
                log.append(topic, trajectory_id.encode(), value, headers, lambda _, error: _heard(failed, error))
                written += 1
                if written % FLUSH_EVERY == 0:
                    log.flush(FLUSH_S)
            if written >= events:
                log.flush(FLUSH_S)
                if failed:
                    raise RuntimeError(f"the benchmark's log was not written: {failed[0]}")
                return written
    raise ValueError("no events were asked for")


def _heard(failed: list[object], error: object) -> None:
    if error is not None:
        failed.append(error)
