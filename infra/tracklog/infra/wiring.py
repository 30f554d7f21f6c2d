"""From settings to open things below the programs: the log, the blob store, how events are framed.

On the embedded log everything is made when it is needed, so that a laptop needs no set-up; on Kafka nothing is
created that was not asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tracklog.infra.blobs import BlobStore, open_blobs
from tracklog.infra.cold.joined import JoinedLog
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.infra.settings import Settings
from tracklog.infra.topic_admin import apply, ensure_writable
from tracklog.schemas import catalog
from tracklog.schemas.catalog import full_name
from tracklog.schemas.codec import Framing, confluent, single_object
from tracklog.schemas.errors import SettingsError, TopicMissing
from tracklog.schemas.events import EVENT_TYPES

if TYPE_CHECKING:
    from tracklog.infra.cold.cold_log import ColdLog
    from tracklog.infra.registry import SchemaRegistry, SubjectSchema

__all__ = [
    "BULK_LINGER_MS",
    "blobs_of",
    "check_topic",
    "check_writable",
    "cold_log_of",
    "framing_of",
    "is_cold",
    "is_embedded",
    "kafka_options",
    "opened_log",
    "registered_schemas",
    "registry_of",
]

BULK_LINGER_MS: Final = 5
COLD: Final = "cold:"


def is_embedded(settings: Settings) -> bool:
    """True when the log is of this machine alone, and nobody else creates its topics."""
    return not settings.log.url.startswith(("kafka://", COLD))


def is_cold(settings: Settings) -> bool:
    """True when the log is the cold tier, which is read only."""
    return settings.log.url.startswith(COLD)


@contextmanager
def opened_log(settings: Settings, *, make_topics: bool = False, bulk: bool = False) -> Iterator[Log]:
    """The log, after it has answered. `make_topics`: on an embedded log, creates the topics that are missing.

    Events that were trimmed are read from the cold tier, where that has them.

    Raises LogUnavailable that names the address, SettingsError, LogFormatError, for a cold log ColdError.
    """
    log = _log_of(settings, bulk=bulk)
    try:
        log.ping(settings.log.connect_timeout_s)
        if make_topics and is_embedded(settings):
            apply(log, settings.topic_specs())
        yield log
    finally:
        log.close()


def _log_of(settings: Settings, *, bulk: bool) -> Log:
    if is_cold(settings):
        where = settings.log.url.removeprefix(COLD) or settings.cold.url
        return open_log(f"{COLD}{where}", cold_options=settings.cold.store_options())
    log = open_log(settings.log.url, kafka_options=kafka_options(settings, bulk=bulk))
    return JoinedLog(log, settings.topic_names.events, lambda: cold_log_of(settings))


def cold_log_of(settings: Settings) -> ColdLog | None:
    """The cold tier of `cold.url`, as a log; None where what reads it is not installed. Nothing is opened yet."""
    try:
        from tracklog.infra.cold.cold_log import ColdLog
    except ImportError:
        return None
    return ColdLog(settings.cold.url, settings.cold.store_options(), timeout_s=settings.cold.timeout_s)


def kafka_options(settings: Settings, *, bulk: bool = False) -> dict[str, str]:
    """What is given under `[kafka]`, with the settings of ours that are options of the client. `bulk`: batches may
    wait a little for company, which a barrier pays for and much writing gains from."""
    ours = {
        "linger.ms": str(BULK_LINGER_MS if bulk else 0),
        "delivery.timeout.ms": str(round(settings.writer.delivery_timeout_s * 1000)),
        "queue.buffering.max.messages": str(settings.writer.queue_records_max),
        "producer.connections": str(settings.writer.connections),
    }
    if settings.log.oauth_token:
        ours["oauth.token"] = settings.log.oauth_token
    return {**ours, **settings.kafka.client_options()}


def check_topic(log: Log, settings: Settings) -> None:
    """TopicMissing that says what to do, before anything else is tried."""
    try:
        log.partition_count(settings.topic_names.events)
    except TopicMissing as error:
        way = "import something first" if is_embedded(settings) else "create the topics: tracklog topics apply"
        raise TopicMissing(error.message, hint=way) from error


def check_writable(log: Log, settings: Settings) -> None:
    """Before anything is written: TopicMissing, or TopicMismatch that names what breaks a guarantee.

    An embedded log has no settings that anybody could have changed; a cold one is not written to.
    """
    if is_cold(settings):
        raise SettingsError(
            f"{log.url} is read only", hint="write to the log itself: --log kafka://HOST:PORT, with cold.url set"
        )
    check_topic(log, settings)
    if not is_embedded(settings):
        ensure_writable(log, settings.topic_specs())


def blobs_of(settings: Settings) -> BlobStore:
    return open_blobs(settings.blobs.url, options=settings.blobs.store_options(), timeout_s=settings.blobs.timeout_s)


def framing_of(settings: Settings) -> Framing:
    if settings.registry.framing_used == "single-object":
        return single_object
    from tracklog.infra.registry import subject_of

    registry, topic = registry_of(settings), settings.topic_names.events
    return confluent(
        {name: registry.id_of(subject_of(topic, full_name(name)), catalog.newest(name).text) for name in EVENT_TYPES}
    )


def registry_of(settings: Settings) -> SchemaRegistry:
    """The schema registry that is set; nobody is asked yet. Raises SettingsError."""
    from tracklog.infra.registry import SchemaRegistry

    given = settings.registry
    return SchemaRegistry(
        given.url, timeout_s=given.timeout_s, username=given.username, password=given.password.get_secret_value()
    )


def registered_schemas(settings: Settings) -> list[SubjectSchema]:
    """What a registry is to hold: every version of every event, each subject's in their order."""
    from tracklog.infra.registry import SubjectSchema, subject_of

    topic = settings.topic_names.events
    return [
        SubjectSchema(subject_of(topic, full_name(name)), schema.text)
        for name in EVENT_TYPES
        for schema in catalog.versions(name)
    ]
