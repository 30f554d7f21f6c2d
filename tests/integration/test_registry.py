"""The schema registry client against a real registry that refuses what must be refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from tests.support.loopback import Asked, Reply, loopback
from tracklog.infra.registry import SchemaRegistry, SubjectSchema, subject_of
from tracklog.infra.stack.ports import free_ports
from tracklog.schemas.catalog import BODIES, KIND_OF, Kind, full_name, versions
from tracklog.schemas.errors import RegistryError, SchemaIncompatible, SettingsError, UnknownSchema

pytestmark = pytest.mark.timeout(240)

Fields = list[dict[str, object]]
NUMBER: Fields = [{"name": "number", "type": "int"}]
WITH_DEFAULT: Fields = [*NUMBER, {"name": "text", "type": "string", "default": ""}]
WITHOUT_DEFAULT: Fields = [*NUMBER, {"name": "text", "type": "string"}]
RENAMED: Fields = [{"name": "count", "type": "int"}]


def record(fields: Fields, name: str = "Thing") -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "tracklog.test", "fields": fields})


@pytest.mark.registry
def test_a_registered_schema_is_found_by_its_id_and_its_id_by_the_schema(registry_url: str, fresh_prefix: str) -> None:
    subject = subject_of(fresh_prefix, "tracklog.test.Thing")
    entry = SubjectSchema(subject, record(NUMBER))
    registry = SchemaRegistry(registry_url, timeout_s=10)

    ids = registry.register_all([entry])
    again = SchemaRegistry(registry_url, timeout_s=10)

    assert again.register_all([entry]) == ids, "registering twice changes nothing"
    assert again.id_of(subject, entry.schema) == ids[entry]
    assert json.loads(again.schema_of(ids[entry])) == json.loads(entry.schema)


@pytest.mark.registry
def test_an_incompatible_evolution_is_refused_before_anything_is_registered(
    registry_url: str, fresh_prefix: str
) -> None:
    registry = SchemaRegistry(registry_url, timeout_s=10)
    subject, other = subject_of(fresh_prefix, "tracklog.test.Thing"), subject_of(fresh_prefix, "tracklog.test.Other")
    registry.register_all([SubjectSchema(subject, record(NUMBER)), SubjectSchema(subject, record(WITH_DEFAULT))])
    harmless = SubjectSchema(other, record(NUMBER, "Other"))

    for broken in (RENAMED, WITHOUT_DEFAULT):
        with pytest.raises(SchemaIncompatible, match=subject):
            registry.register_all([harmless, SubjectSchema(subject, record(broken))])
    with pytest.raises(RegistryError, match="does not have this schema"):
        registry.id_of(other, harmless.schema)


@pytest.mark.registry
def test_a_schema_that_was_never_registered_has_no_id_and_none_is_made(registry_url: str, fresh_prefix: str) -> None:
    registry = SchemaRegistry(registry_url, timeout_s=10)
    for _ in range(2):
        with pytest.raises(RegistryError) as caught:
            registry.id_of(subject_of(fresh_prefix, "tracklog.test.Thing"), record(NUMBER))
        assert "register the schemas first" in caught.value.hint
    with pytest.raises(UnknownSchema, match="no schema with id 999999"):
        registry.schema_of(999_999)


@pytest.mark.registry
def test_every_schema_of_the_package_can_be_registered(registry_url: str, fresh_prefix: str) -> None:
    entries = [
        SubjectSchema(subject_of(f"{fresh_prefix}.{schema.kind}", full_name(name)), schema.text)
        for kind in Kind
        for name in BODIES[kind]
        for schema in versions(name)
    ]
    assert len(entries) >= len(KIND_OF)
    ids = SchemaRegistry(registry_url, timeout_s=30).register_all(entries)
    assert len(set(ids.values())) == len({entry.schema for entry in entries})


def guarded(asked: Asked) -> Reply:
    """Answers one schema to those who know the password; for what Apicurio without a login server cannot show."""
    known = asked.headers.get("authorization") == f"Basic {base64.b64encode(b'writer:right').decode()}"
    body = {"schema": record(NUMBER)} if known else {"error_code": 401, "message": "who are you?"}
    return Reply(200 if known else 401, json.dumps(body).encode())


@pytest.fixture
def guarded_url() -> Iterator[str]:
    with loopback(guarded) as service:
        yield service.url


def test_a_registry_with_a_password_is_given_it(guarded_url: str) -> None:
    registry = SchemaRegistry(guarded_url, timeout_s=5, username="writer", password="right")
    assert json.loads(registry.schema_of(1)) == json.loads(record(NUMBER))


def test_a_wrong_password_is_refused_and_not_shown(guarded_url: str) -> None:
    registry = SchemaRegistry(guarded_url, timeout_s=5, username="writer", password="s3cret")
    with pytest.raises(RegistryError, match="refuses us") as caught:
        registry.schema_of(1)
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__}"


def test_no_registry_at_the_address_is_an_error_that_names_it() -> None:
    [port] = free_ports(1)
    registry = SchemaRegistry(f"http://127.0.0.1:{port}/apis", timeout_s=1)
    with pytest.raises(RegistryError, match=f"127.0.0.1:{port}.*does not answer"):
        registry.schema_of(1)


def test_settings_that_the_client_does_not_know_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"ssl\.typo"):
        SchemaRegistry("http://127.0.0.1:1", timeout_s=1, options={"ssl.typo": "x"})
