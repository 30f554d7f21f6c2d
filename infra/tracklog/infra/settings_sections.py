"""The settings themselves: one frozen class per concern (DESIGN §3-§6, §10).

Each field says its unit, its default, why it is so, and how to switch it off. Times are seconds, sizes bytes. Where
values come from is in `settings_sources`; `docs/settings.md` is written from this module and the others beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from tracklog.infra.settings_base import HOME_DEFAULT, Count, Positive, Section
from tracklog.infra.settings_cold import ColdSettings, RetentionSettings
from tracklog.infra.settings_health import HealthSettings, LoggingSettings
from tracklog.infra.settings_http import ApiSettings, IngestSettings, OidcSettings, WebhookSettings
from tracklog.infra.settings_redaction import RedactionSettings
from tracklog.infra.settings_roles import CheckpointSettings, DispatchSettings, ProcessorSettings, WorkerSettings
from tracklog.infra.settings_secrets import public_value, without_password
from tracklog.infra.settings_spans import SpanSettings
from tracklog.schemas import limits
from tracklog.schemas.topics import Topics, TopicSpec, topic_specs

LOG_SCHEMES: Final = ("sqlite:", "kafka://", "memory:", "cold:")
REDIS_SCHEMES: Final = (*(f"redis{s}{kind}://" for kind in ("", "+cluster", "+sentinel") for s in ("", "s")), "unix://")
BLOB_SCHEMES: Final = ("file://", "s3://", "gs://", "memory://")

KAFKA_OPTIONS_FIXED: Final[Mapping[str, str]] = {
    "bootstrap.servers": "it comes from `log.url`",
    "metadata.broker.list": "it comes from `log.url`",
    "delivery.timeout.ms": "set `writer.delivery_timeout_s`",
    "message.timeout.ms": "set `writer.delivery_timeout_s`",
    "message.max.bytes": "set `topics.max_message_bytes`",
    "queue.buffering.max.messages": "set `writer.queue_records_max`",
    "acks": "an acknowledgement by fewer replicas is no barrier",
    "request.required.acks": "an acknowledgement by fewer replicas is no barrier",
    "enable.idempotence": "without it a retry can overtake what it repeats",
    "partitioner": "another partitioner would split a trajectory over two partitions",
    "transactional.id": "nothing of Tracklog's uses transactions",
    "isolation.level": "readers see committed records only",
    "auto.offset.reset": "every assignment sets its offset",
    "enable.auto.commit": "state and position are stored together, never apart",
    "enable.auto.offset.store": "state and position are stored together, never apart",
    "allow.auto.create.topics": "topics are created by `tracklog topics apply` and checked",
    "group.id": "it is made from `prefix`",
}
"""Client options that carry a guarantee or have a setting of their own: refused in `[kafka]`, and why."""


class LogSettings(Section):
    """Where the log is."""

    url: str = f"sqlite:{HOME_DEFAULT}/log.db"
    """Address of the log: `sqlite:PATH` (one machine, a local disk), `kafka://HOST:PORT[,HOST:PORT]`, `memory:`
    (tests), or for reading alone `cold:ADDRESS` (the events of a cold tier; `cold:` is the one of `cold.url`).
    Default: a file under `home`, so that a bare install runs with no service. Passwords do not belong here but
    under `[kafka]`."""
    connect_timeout_s: Positive = 5.0
    """Seconds until an absent log is an error that names its address. Long enough for a broker's start of
    a few seconds, short enough for a person who mistyped a port; the Kafka client needs up to 4 s more to
    end when a name cannot be resolved. Cannot be switched off."""
    oauth_token: str = ""
    """Where the tokens of `sasl.mechanism=OAUTHBEARER` come from: `msk:REGION` for Amazon MSK with IAM (extra
    `msk`; credentials are found as AWS's own tools find them), or `MODULE:FUNCTION` of yours that returns a token
    and the time it ends, in seconds since 1970. Default: empty, the client's own ways."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        if not url.startswith(LOG_SCHEMES):
            raise ValueError(
                f"{without_password(url)!r} is no log address; use sqlite:PATH, kafka://HOST:PORT, cold:ADDRESS or"
                " memory:"
            )
        if url.startswith("kafka://") and "@" in url:
            raise ValueError(
                "a log address carries no user or password; set sasl.username and sasl.password in [kafka]"
            )
        return url


class KafkaSettings(Section):
    """Options handed to the Kafka client as they are, for SASL, TLS and tuning."""

    options: Mapping[str, SecretStr] = Field(default_factory=dict)
    """Client options by their librdkafka names, e.g. `security.protocol`, `sasl.mechanism`,
    `sasl.username`, `sasl.password`, `ssl.ca.location`, `linger.ms`. Default: none. Options on which a
    guarantee rests are refused, with the reason. In a file: the table `[kafka]`; in the environment:
    `TRACKLOG_KAFKA_SASL_MECHANISM` for `sasl.mechanism`. Remove an option to go back to Tracklog's own
    choice."""

    @field_validator("options")
    @classmethod
    def _no_guarantee_undone(cls, options: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
        for name in options:
            if name in KAFKA_OPTIONS_FIXED:
                raise ValueError(f"{name} cannot be set here: {KAFKA_OPTIONS_FIXED[name]}")
        return options

    def client_options(self) -> dict[str, str]:
        """The options in plain text, for the client alone. Never print them."""
        return {name: value.get_secret_value() for name, value in self.options.items()}


class RedisSettings(Section):
    """The projection store. Everything in it can be rebuilt from the log."""

    url: SecretStr = SecretStr("embedded")
    """`embedded` (the default: a server of our own under `home`, so that a bare install needs no service),
    `redis://[USER:PASSWORD@]HOST:PORT[/DB]`, `rediss://...` for TLS, `redis+cluster://HOST:PORT` and
    `rediss+cluster://...` for a cluster, `redis+sentinel://HOST:PORT,HOST:PORT/SERVICE[/DB]` and
    `rediss+sentinel://...` behind sentinels (`?sentinel_password=...` where they ask for one), or `unix://PATH`.
    Kept as a secret, because it may hold a password."""
    username: str = ""
    """User, where the address names none. Default: empty, the server's default user."""
    password: SecretStr = SecretStr("")
    """Password, where the address holds none: so that it can lie in a file of its own (`TRACKLOG_SECRETS`).
    Default: empty. A secret."""
    timeout_s: Positive = 10.0
    """Seconds until a server that does not answer is an error. Bounds connecting and each command. Cannot
    be switched off."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: SecretStr) -> SecretStr:
        text = url.get_secret_value()
        if text != "embedded" and not text.startswith(REDIS_SCHEMES):
            raise ValueError(f"the address must be `embedded` or start with {', '.join(REDIS_SCHEMES)}")
        return url

    @model_validator(mode="after")
    def _one_place_for_a_password(self) -> Self:
        url = self.url.get_secret_value()
        if (self.username or self.password.get_secret_value()) and "@" in urlsplit(url).netloc:
            raise ValueError("the address holds a user or password already; give username and password in one place")
        return self

    @property
    def address(self) -> str:
        """The address without its password, fit for messages."""
        return without_password(self.url.get_secret_value())

    @property
    def url_in_full(self) -> str:
        """The address with user and password, for the client alone. Never print it."""
        url, password = self.url.get_secret_value(), self.password.get_secret_value()
        if url == "embedded" or not (self.username or password):
            return url
        scheme, _, rest = url.partition("://")
        return f"{scheme}://{quote(self.username, safe='')}:{quote(password, safe='')}@{rest}"


class BlobSettings(Section):
    """The blob store: bodies too large for an event, prompt templates, tool schemas."""

    url: str = f"{HOME_DEFAULT}/blobs"
    """A directory (`PATH` or `file:///PATH`), `s3://BUCKET[/PREFIX]`, `gs://BUCKET[/PREFIX]` or
    `memory://` (tests). Default: a directory under `home`. Credentials come from `blobs.options` or from
    where the cloud's own tools find them."""
    options: Mapping[str, SecretStr] = Field(default_factory=dict)
    """Options of the object store by their obstore names, e.g. `region`, `endpoint`, `access_key_id`,
    `secret_access_key`, `allow_http`. Default: none. Unused by a directory."""
    timeout_s: Positive = 60.0
    """Seconds one request to an object store may take, retries included. An event waits for its bodies, so
    a store that hangs must become an error. Unused by a directory. Cannot be switched off."""
    body_inline_bytes_max: Annotated[int, Field(ge=0, le=limits.EVENT_BYTES_MAX)] = limits.BODY_INLINE_BYTES_MAX
    """Bytes up to which a body stays inside its event; a larger one goes to the blob store before the
    event that names it. Default 64 KiB: a fold reads few stores, and batches stay small. 0 stores every
    body outside."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        if not url or ("://" in url and not url.startswith(BLOB_SCHEMES)):
            raise ValueError(f"{url!r} is no blob store; use a directory, file:///, s3://, gs:// or memory://")
        if "@" in urlsplit(url).netloc:
            raise ValueError("a blob address carries no user or password; set them in [blobs.options]")
        return url

    def store_options(self) -> dict[str, str]:
        """The options in plain text, for the store alone. Never print them."""
        return {name: value.get_secret_value() for name, value in self.options.items()}


class TopicSettings(Section):
    """The five topics, as `tracklog topics apply` creates and `tracklog topics verify` checks them."""

    partitions: Annotated[int, Field(ge=1, le=limits.PARTITIONS_MAX)] = limits.PARTITIONS_DEFAULT
    """Partitions of each topic; all five have the same count, fixed for life, because a key's partition
    depends on it. Bounds how many processes share the work. Default 12: divides evenly among 1, 2, 3, 4, 6
    and 12."""
    replication_factor: Annotated[int, Field(ge=1, le=32767)] = 3
    """Copies of each partition. Default 3 on `kafka://`, so that one broker can fail and one be in repair;
    1 on `sqlite:` and `memory:`, which have one copy. Set 1 for a broker alone on a laptop."""
    min_insync_replicas: Annotated[int, Field(ge=1, le=32767)] = 2
    """Copies that must hold a record before it counts as written; with fewer, writing stops and no effect
    starts. Default 2 on `kafka://`, else 1. With 1 the topics are created with `flush.messages=1`, so that
    the barrier is the disk."""
    max_message_bytes: Annotated[int, Field(ge=limits.EVENT_BYTES_MAX, le=1024 * 1024 * 1024)] = (
        limits.MESSAGE_BYTES_MAX
    )
    """Bytes of the largest record a topic takes, headers and framing included. Default 1 MiB, which
    brokers accept unasked; cannot be less than the largest event."""

    @model_validator(mode="after")
    def _enough_replicas(self) -> Self:
        if self.min_insync_replicas > self.replication_factor:
            raise ValueError(
                f"min_insync_replicas={self.min_insync_replicas} can never be met with"
                f" replication_factor={self.replication_factor}"
            )
        return self


class WriterSettings(Section):
    """Writing events: how long to wait, how much to queue, how durable."""

    barrier: Literal["strongest", "replicated", "fsync"] = "strongest"
    """What a barrier waits for. `replicated`: in the memory of at least two replicas; `fsync`: on the disk
    of every acknowledging one; `strongest` (default): the most the topic gives. Asking for more than the
    topic gives is an error, never a weaker barrier in silence."""
    delivery_timeout_s: Positive = 300.0
    """Seconds until a record without a delivery report counts as unknown (not as failed). Default five
    minutes: longer than a leader election, so that few appends end unknown. Cannot be switched off."""
    reconcile_timeout_s: Positive = 60.0
    """Seconds spent finding out what became of an unknown append, before the error `Undecided`. Cannot be
    switched off."""
    queue_records_max: Count = 100_000
    """Records waiting in the producers of one process. Above it, appends wait (back-pressure) instead of
    filling memory. Default 100,000: 60 MB of 600-byte events."""
    connections: Count = 1
    """Connections of one process to each broker that its appends go over. A broker takes in one request of each at a
    time and answers it when it is durable: partitions behind one wait for one another, and what waits becomes fewer and
    larger requests. Default 1. Try 4 where a sync of the brokers' disks takes milliseconds and their cores are idle."""
    pipelined_events_max: Count = 1024
    """Events one trajectory may have under way without a delivery report. Bounds what is written again
    after a lost record. 1 waits for each event."""


class LoopSettings(Section):
    """The partition loop under every worker, dispatcher, router, processor and exporter."""

    batch_records_max: Count = 5000
    """Records folded and stored in one step. More cost fewer round trips; a crash repeats them, harmlessly."""
    batch_wait_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.05
    """Seconds to wait at most for a batch to fill, never longer than a quarter of what the one before took: who has
    little to do stores at once, who is busy finds the next batch waiting. 0 never waits."""
    poll_timeout_s: Positive = 0.5
    """Seconds one poll of the log waits when nothing comes. Bounds how late the loop hears of a stop."""
    stall_timeout_s: Positive = 120.0
    """Seconds without progress, while there are records to read, after which the process reports itself as not alive:
    progress counts, not whether a broker can be reached. Set it very high to be restarted by nobody."""
    outage_timeout_s: Positive = 3600.0
    """Seconds that a standing process waits for a log or a Redis that is away; then it ends, with exit code 3. Long,
    because a restart brings neither back. What is done once (`--once`) waits for two minutes."""


class ProjectionSettings(Section):
    """The views in Redis: how much of each trajectory they keep."""

    warm_log_events_max: Annotated[int, Field(ge=0)] = 10_000
    """Events of one trajectory kept in Redis (the newest), for `tracklog show`. 0 keeps none; the log has them all."""
    warm_log_bytes_max: Annotated[int, Field(ge=0)] = 16 * 1024 * 1024
    """Bytes of encoded events of one trajectory kept in Redis (the newest). Default 16 MiB. 0 keeps none."""
    warm_log_age_s: Positive = 7 * 24 * 3600.0
    """Seconds after its last event until a trajectory's kept events leave Redis. Default a week. The state stays."""
    warm_log_tenant_bytes_max: Annotated[int, Field(ge=0)] = 256 * 1024 * 1024
    """Bytes of encoded events of one tenant kept in Redis in each partition; where there are more, those leave whose
    trajectory's last append is the oldest, and are read in the log. Default 256 MiB. 0: no bound."""
    ended_age_s: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 30 * 24 * 3600.0
    """Seconds after its last append, by the time of the log, until an ended trajectory leaves Redis: state, lists,
    events. Default 30 days. 0: none leaves. The log has it, and `tracklog show` reads it there."""
    ended_per_tenant_max: Annotated[int, Field(ge=0)] = 10_000
    """Ended trajectories of one tenant that Redis keeps in each partition; where there are more, those whose last
    append is the oldest leave. Default 10,000: about 50 MB. 0: no bound."""
    trajectories_cached_max: Count = 10_000
    """States that one projection process holds in memory; others are read back from Redis. Default: under 300 MB."""


class RegistrySettings(Section):
    """A schema registry that speaks the Confluent API. Optional: schemas ship inside the package."""

    url: str = ""
    """Base address, e.g. `http://HOST:PORT/apis/ccompat/v7`. Default: empty, no registry, and events are
    framed so that none is needed. Readers accept both framings whatever is set here."""
    framing: Literal["auto", "confluent", "single-object"] = "auto"
    """How event bytes begin. `confluent`: a zero byte and the registry's schema id; `single-object`: `C3
    01` and the schema's fingerprint; `auto` (default): `confluent` when a registry is set. Hashes are the
    same under both."""
    username: str = ""
    """User for the registry's basic authentication. Default: empty, none."""
    password: SecretStr = SecretStr("")
    """Its password. Default: empty. A secret."""
    timeout_s: Positive = 10.0
    """Seconds one request to the registry may take. Cannot be switched off."""

    @model_validator(mode="after")
    def _registry_given(self) -> Self:
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"{without_password(self.url)!r} is no registry; use http://HOST:PORT/PATH or https://")
        if "@" in urlsplit(self.url).netloc:
            raise ValueError("a registry address carries no user or password; set registry.username and .password")
        if self.framing == "confluent" and not self.url:
            raise ValueError("framing `confluent` needs registry.url: its ids are the registry's")
        return self

    @property
    def framing_used(self) -> Literal["confluent", "single-object"]:
        if self.framing == "auto":
            return "confluent" if self.url else "single-object"
        return self.framing


class Settings(Section):
    """All settings of one process. Build it with `load_settings`, or from parts in code."""

    prefix: str = "tracklog"
    """Starts the names of topics, consumer groups and Redis keys, and so of ACLs: two installations with
    different prefixes share a cluster."""
    tenant: Annotated[str, Field(min_length=1, max_length=limits.TEXT_FIELD_CHARS_MAX)] = "default"
    """The tenant that new trajectories belong to when nothing else says so."""
    home: Annotated[str, Field(min_length=1)] = HOME_DEFAULT
    """Directory for everything local: the embedded log, blobs, Redis, the local stack. Default `.tracklog`
    in the current directory. Removing it removes all local data."""
    log: LogSettings = LogSettings()
    kafka: KafkaSettings = KafkaSettings()
    redis: RedisSettings = RedisSettings()
    blobs: BlobSettings = BlobSettings()
    topics: TopicSettings = TopicSettings()
    writer: WriterSettings = WriterSettings()
    loop: LoopSettings = LoopSettings()
    projection: ProjectionSettings = ProjectionSettings()
    processors: ProcessorSettings = ProcessorSettings()
    worker: WorkerSettings = WorkerSettings()
    dispatch: DispatchSettings = DispatchSettings()
    api: ApiSettings = ApiSettings()
    ingest: IngestSettings = IngestSettings()
    oidc: OidcSettings = OidcSettings()
    webhooks: WebhookSettings = WebhookSettings()
    checkpoints: CheckpointSettings = CheckpointSettings()
    cold: ColdSettings = ColdSettings()
    retention: RetentionSettings = RetentionSettings()
    redaction: RedactionSettings = RedactionSettings()
    registry: RegistrySettings = RegistrySettings()
    health: HealthSettings = HealthSettings()
    logging: LoggingSettings = LoggingSettings()
    spans: SpanSettings = SpanSettings()

    @model_validator(mode="before")
    @classmethod
    def _defaults_that_follow(cls, given: Any) -> Any:
        """Fills what depends on another setting: local paths on `home`, replication on the kind of log."""
        if not isinstance(given, Mapping):
            return given
        filled = dict(given)
        home = filled.get("home", HOME_DEFAULT)
        _fill(filled, "log", url=f"sqlite:{home}/log.db")
        _fill(filled, "blobs", url=f"{home}/blobs")
        _fill(filled, "cold", url=f"{home}/cold")
        _fill(filled, "checkpoints", workspaces=f"{home}/workspaces")
        log = filled["log"]
        log_url = log.url if isinstance(log, LogSettings) else log["url"] if isinstance(log, Mapping) else ""
        if not str(log_url).startswith("kafka://"):
            _fill(filled, "topics", replication_factor=1, min_insync_replicas=1)
        return filled

    @field_validator("prefix")
    @classmethod
    def _usable_prefix(cls, prefix: str) -> str:
        return Topics(prefix).prefix

    @property
    def topic_names(self) -> Topics:
        return Topics(self.prefix)

    def topic_specs(self) -> tuple[TopicSpec, ...]:
        """The five topics as they should be."""
        return topic_specs(self.topic_names, **self.topics.model_dump())

    def public(self) -> dict[str, Any]:
        """Everything, as plain values fit for printing: secrets and passwords in addresses are masked."""
        shown: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            shown[name] = _public_section(value) if isinstance(value, Section) else value
        shown["redis"]["url"] = self.redis.address
        return shown


def _fill(given: dict[str, Any], section: str, **defaults: object) -> None:
    """Sets what the section leaves out; a section given as an object is complete and stays as it is."""
    values = given.get(section, {})
    if isinstance(values, Mapping):
        given[section] = {**defaults, **values}


def _public_section(section: Section) -> dict[str, Any]:
    return {name: public_value(name, getattr(section, name)) for name in type(section).model_fields}
