"""A schema registry that speaks the Confluent API, for those who want every tool to decode the records.

The schemas in the package stay the truth; a registry holds copies and hands out ids. Registering is a deploy
step (`register_all`); a running writer only looks ids up, so that no process changes what others may write.
Subjects follow TopicRecordName: each record type of a topic evolves alone.

Needs the extra `registry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol

from tracklog.schemas.errors import RegistryError, SchemaIncompatible, SettingsError, UnknownSchema

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

__all__ = ["COMPATIBILITY", "SchemaIds", "SchemaRegistry", "SubjectSchema", "subject_of"]

COMPATIBILITY: Final = "FULL_TRANSITIVE"
"""Old readers read new records and new readers all old ones, over every version: a log is read for years."""
RETRIES: Final = 2
RETRY_WAIT_MS: Final = 100
RETRY_WAIT_MS_MAX: Final = 1000
NO_SUBJECT: Final = 40401
NO_SCHEMA: Final = 40403


class SchemaIds(Protocol):
    """What framing needs of a registry: which number stands for which schema."""

    def id_of(self, subject: str, schema: str) -> int:
        """The id under which this very schema is registered. Raises RegistryError when it is not."""

    def schema_of(self, schema_id: int) -> str:
        """The schema with this id, as JSON text. Raises UnknownSchema when the registry has none."""


@dataclass(frozen=True, slots=True)
class SubjectSchema:
    """One schema under one subject, as JSON text. Versions of one subject go in their order."""

    subject: str
    schema: str


def subject_of(topic: str, record_name: str) -> str:
    """TopicRecordName: `record_name` is the full Avro name, namespace included."""
    return f"{topic}-{record_name}"


class SchemaRegistry:
    """A client with bounds. Thread-safe; ids and schemas never change, so each is asked for once.

    `timeout_s` bounds one request, of which there are at most three. `options` go to the client as they are,
    by its own names: `ssl.ca.location`, `ssl.certificate.location`, `bearer.auth.credentials.source`, ...
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        username: str = "",
        password: str = "",
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.url = url
        self._client = _client(url, timeout_s, username, password, options or {})
        self._ids: dict[tuple[str, str], int] = {}
        self._schemas: dict[int, str] = {}

    def id_of(self, subject: str, schema: str) -> int:
        known = self._ids.get((subject, schema))
        if known is None:
            with self._errors(subject):
                known = int(self._client.lookup_schema(subject, _avro(schema)).schema_id)
            self._ids[subject, schema] = known
        return known

    def holds(self, entry: SubjectSchema) -> bool:
        """Whether this very schema is registered under its subject. Raises RegistryError when nobody can say."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        with self._errors(entry.subject):
            try:
                self._client.lookup_schema(entry.subject, _avro(entry.schema))
            except SchemaRegistryError as error:
                if error.error_code not in (NO_SUBJECT, NO_SCHEMA):
                    raise
                return False
            return True

    def compatibility_of(self, subject: str) -> str:
        """The level in force for a subject: its own, else that of the registry. Raises RegistryError."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        with self._errors(subject):
            try:
                return str(self._client.get_compatibility(subject))
            except SchemaRegistryError as error:
                if error.http_status_code != HTTPStatus.NOT_FOUND:
                    raise
                return str(self._client.get_compatibility())

    def schema_of(self, schema_id: int) -> str:
        known = self._schemas.get(schema_id)
        if known is None:
            with self._errors(f"schema id {schema_id}"):
                known = self._schema_text(schema_id)
            self._schemas[schema_id] = known
        return known

    def _schema_text(self, schema_id: int) -> str:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return str(self._client.get_schema(schema_id).schema_str)
        except SchemaRegistryError as error:
            if error.error_code != NO_SCHEMA:
                raise
            raise UnknownSchema(
                f"the registry at {self.url} has no schema with id {schema_id}",
                hint="the record was written against another registry, or the schema was deleted there",
            ) from error

    def schemas_under(self, subject: str) -> list[str]:
        """All versions of a subject, oldest first, as JSON text; none where there is no such subject. RegistryError."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        with self._errors(subject):
            try:
                numbers = self._client.get_versions(subject)
            except SchemaRegistryError as error:
                if error.error_code != NO_SUBJECT:
                    raise
                return []
            return [str(self._client.get_version(subject, one).schema.schema_str) for one in sorted(numbers)]

    def register_all(self, entries: Iterable[SubjectSchema]) -> dict[SubjectSchema, int]:
        """Registers every schema, after all were found compatible with what their subjects hold. Idempotent.

        Sets each subject to FULL_TRANSITIVE. Raises SchemaIncompatible before anything was registered;
        RegistryError.
        """
        wanted = list(entries)
        refused = sorted({entry.subject for entry in wanted if not self._compatible(entry)})
        if refused:
            raise SchemaIncompatible(
                f"the registry at {self.url} holds incompatible versions of {', '.join(refused)}; none was registered",
                hint="another program owns these subjects, or a released schema was changed: use another prefix",
            )
        return {entry: self._register(entry) for entry in wanted}

    def _compatible(self, entry: SubjectSchema) -> bool:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        with self._errors(entry.subject):
            self._client.set_compatibility(entry.subject, COMPATIBILITY)
            try:
                return bool(self._client.test_compatibility_all_versions(entry.subject, _avro(entry.schema)))
            except SchemaRegistryError as error:
                if error.error_code != NO_SUBJECT:
                    raise
                return True  # the first schema of its subject

    def _register(self, entry: SubjectSchema) -> int:
        with self._errors(entry.subject):
            schema_id = int(self._client.register_schema(entry.subject, _avro(entry.schema)))
        self._ids[entry.subject, entry.schema] = schema_id
        return schema_id

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Every error of the client leaves as a RegistryError that names the registry and what was asked."""
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        try:
            yield
        except SchemaRegistryError as error:
            raise self._translated(what, error.http_status_code, error.error_code, str(error)) from error
        except OAuthTokenError as error:
            raise RegistryError(f"no token for the registry at {self.url} (HTTP {error.status_code})") from None
        except Exception as error:
            if not _is_transport(error):
                raise
            raise RegistryError(
                f"the registry at {self.url} does not answer: {error}", hint="is it running? see registry.url"
            ) from error

    def _translated(self, what: str, status: int, code: int | None, text: str) -> RegistryError:
        where = f"the registry at {self.url}"
        if status in (401, 403):
            return RegistryError(f"{where} refuses us: {text}", hint="check registry.username and registry.password")
        if status == 409:
            return SchemaIncompatible(f"{where} refuses {what}: {text}", hint="a released schema was changed")
        if code in (NO_SUBJECT, NO_SCHEMA):
            return RegistryError(
                f"{where} does not have this schema of {what}", hint="register the schemas first: tracklog topics apply"
            )
        return RegistryError(f"{where}, asked for {what}: {text}", hint="does its address end in the API's path?")


def _client(url: str, timeout_s: float, username: str, password: str, options: Mapping[str, str]) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise SettingsError(
            f"a schema registry is set, but its client is not installed ({error.name} is missing)",
            hint="pip install 'tracklog[registry]', or unset registry.url",
        ) from error
    settings: dict[str, Any] = {
        "url": url,
        "timeout": timeout_s,
        "max.retries": RETRIES,
        "retries.wait.ms": RETRY_WAIT_MS,
        "retries.max.wait.ms": RETRY_WAIT_MS_MAX,
        **options,
    }
    if username:
        settings["basic.auth.user.info"] = f"{username}:{password}"
    try:
        return SchemaRegistryClient(settings)
    except (ValueError, OSError) as error:  # OSError: a certificate file that cannot be read
        raise SettingsError(f"the settings of the schema registry at {url} are not usable: {error}") from error


def _avro(schema: str) -> Schema:
    from confluent_kafka.schema_registry import Schema

    return Schema(schema, "AVRO")


def _is_transport(error: Exception) -> bool:
    """Whether the HTTP library failed; which library that is changes with the version of the client."""
    return any(base.__name__ == "TransportError" for base in type(error).__mro__)
