"""The .avsc files: they say what the models say, their fingerprints are Avro's, and what is frozen stays so."""

from __future__ import annotations

import hashlib
import json
import types
import typing
from collections.abc import Mapping
from typing import Any

import fastavro
import pytest

from scripts.golden import FINGERPRINTS, fingerprints
from tests.unit.schemas.avro_canon import canonical, crc_64_avro
from tracklog.schemas import catalog, values
from tracklog.schemas.avsc import record_schema
from tracklog.schemas.catalog import BODIES, ENVELOPES, KIND_OF, Kind, Schema

ALL = [schema for name in KIND_OF for schema in catalog.versions(name)]
IDS = [f"{schema.name}.{schema.version}" for schema in ALL]
NEWEST = [catalog.newest(name) for name in KIND_OF]

SAFE_WORDS = {
    "Driver": "import",
    "Effect": "opaque",
    "Place": "recorded",
    "Ruling": "deny",
    "ResultStatus": "unknown",
    "Settled": "recorded",
    "Choice": "deny",
    "OnExpiry": "deny",
    "Ending": "failed",
    "SnapshotKind": "full",
    "ObservedKind": "step",
    "EditOp": "keep",
    "TargetKind": "trajectory",
    "Role": "user",
}
"""What a reader does that meets a newer word: the word that does the least."""

ENVELOPE_SHA256 = {
    Kind.EVENTS: "d512e0f99426f26ada80f1551c04e763ccfb2e18ffe01404217f90838ad61856",
    Kind.INBOX: "a19b430def2cf68c7391aa7e19e452d5bce568d8c1126450587041f90b67ff49",
    Kind.LEDGER: "4cfd06018e2d7becedc49024dc180db2e8b8e8cf768cb4acb3c4e947598e888c",
    Kind.CONTROLS: "a19b430def2cf68c7391aa7e19e452d5bce568d8c1126450587041f90b67ff49",
}
"""Of the canonical forms. Never to be changed: the envelope must decode as a prefix of any record, for ever."""


@pytest.mark.parametrize(
    ("schema", "published"),
    [
        ("null", 7195948357588979594),
        ("boolean", -6970731678124411036),
        ("int", 8247732601305521295),
        ("long", -3434872931120570953),
        ("float", 5583340709985441680),
        ("double", -8181574048448539266),
        ("bytes", 5746618253357095269),
        ("string", -8142146995180207161),
        ({"fields": [], "type": "record", "name": "foo"}, -4824392279771201922),
        ({"fields": [], "type": "record", "name": "foo", "namespace": "x.y"}, 5916914534497305771),
        ({"type": "fixed", "name": "foo", "size": 15}, 1756455273707447556),
    ],
)
def test_fingerprints_are_those_that_avro_publishes_little_endian(schema: Any, published: int) -> None:
    """The numbers are those of Avro's own schema-tests.txt."""
    raw = {"type": schema} if isinstance(schema, str) else schema

    assert catalog.fingerprint(raw) == published.to_bytes(8, "little", signed=True)
    assert crc_64_avro(canonical(raw).encode()).to_bytes(8, "little") == catalog.fingerprint(raw)


@pytest.mark.parametrize("schema", ALL, ids=IDS)
def test_every_fingerprint_is_what_the_specification_makes_of_the_file(schema: Schema) -> None:
    expected = crc_64_avro(canonical(json.loads(schema.text)).encode())

    assert schema.fingerprint == expected.to_bytes(8, "little")


def test_no_two_versions_have_the_same_fingerprint() -> None:
    assert len(catalog.by_fingerprint()) == len(ALL)


def test_a_version_that_was_ever_written_down_never_changes() -> None:
    kept = json.loads(FINGERPRINTS.read_text())

    assert fingerprints() == kept, "never edit a released file: add a version, then run scripts/golden.py"


@pytest.mark.parametrize("schema", ALL, ids=IDS)
def test_versions_of_a_type_are_numbered_from_one_without_a_hole(schema: Schema) -> None:
    numbers = [each.version for each in catalog.versions(schema.name)]

    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("schema", ALL, ids=IDS)
def test_every_record_begins_with_the_envelope_of_its_kind(schema: Schema) -> None:
    first = json.loads(schema.text)["fields"][0]

    assert first["name"] == "envelope"
    assert hashlib.sha256(canonical(first["type"]).encode()).hexdigest() == ENVELOPE_SHA256[schema.kind]


@pytest.mark.parametrize("name", ["OwnershipClaimed", "OwnershipReleased"])
def test_ownership_events_never_get_a_second_version(name: str) -> None:
    """A reader that did not know a version of a claim would not count its epoch, and judge differently."""
    assert [schema.version for schema in catalog.versions(name)] == [1]


@pytest.mark.parametrize("schema", NEWEST, ids=list(KIND_OF))
def test_the_newest_file_is_what_the_generator_makes_of_the_model(schema: Schema) -> None:
    expected = record_schema(schema.name, schema.model, ENVELOPES[schema.kind])

    assert json.loads(schema.text) == json.loads(json.dumps(expected)), "run scripts/schemas.py for a new version"


@pytest.mark.parametrize("schema", NEWEST, ids=list(KIND_OF))
def test_the_newest_file_and_the_model_agree_field_by_field(schema: Schema) -> None:
    raw = json.loads(schema.text)
    named = _named_types(raw)

    _assert_same_record(ENVELOPES[schema.kind], raw["fields"][0]["type"], named, schema.name)
    _assert_same_fields(schema.model, raw["fields"][1:], named, schema.name)


def test_every_file_is_of_a_known_type() -> None:
    files = {file.name for kind in Kind for file in catalog._folder(kind).iterdir()}

    assert files == {f"{schema.name}.{schema.version}.avsc" for schema in ALL}


def test_every_closed_set_falls_back_to_its_safest_word() -> None:
    words = {cls.__name__: cls.fallback() for cls in values.Word.__subclasses__()}
    enums = {t["name"]: t["default"] for s in ALL for t in _named_types(json.loads(s.text)).values() if "symbols" in t}

    assert words == SAFE_WORDS
    assert {name.rpartition(".")[2]: default for name, default in enums.items()}.items() <= SAFE_WORDS.items()


@pytest.mark.parametrize("schema", ALL, ids=IDS)
def test_every_default_is_a_value_of_its_own_type(schema: Schema) -> None:
    raw = json.loads(schema.text)
    named = _named_types(raw)
    for record in [raw, *(t for t in named.values() if t["type"] == "record")]:
        for field in record["fields"]:
            if "default" in field:
                _assert_default(field["type"], field["default"], named, f"{record['name']}.{field['name']}")


def test_every_type_is_of_one_kind() -> None:
    assert len(KIND_OF) == sum(len(bodies) for bodies in BODIES.values()) == 39


def _named_types(schema: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    pending = [schema]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending += each
        elif isinstance(each, dict):
            if "name" in each and each["type"] in ("record", "enum", "fixed"):
                found[f"tracklog.{each['name']}"] = each
            pending += [each.get("items"), each.get("values"), each["type"]]
            pending += [field["type"] for field in each.get("fields", ())]
    return found


def _assert_same_fields(model: Any, fields: list[Any], named: Mapping[str, Any], where: str) -> None:
    hints = typing.get_type_hints(model, include_extras=True)
    assert [field["name"] for field in fields] == list(model.model_fields), where
    for field in fields:
        name, info = field["name"], model.model_fields[field["name"]]
        _assert_same(hints[name], field["type"], named, f"{where}.{name}")
        assert ("default" in field) is not info.is_required(), f"{where}.{name}: a default in one of the two only"
        if "default" in field:
            given = info.get_default(call_default_factory=True, validated_data={})
            plain = given.model_dump(mode="json") if isinstance(given, values.Value) else given
            assert field["default"] == (list(plain) if isinstance(plain, tuple) else plain), f"{where}.{name}"


def _assert_same_record(model: Any, schema: Any, named: Mapping[str, Any], where: str) -> None:
    assert schema["type"] == "record", where
    assert schema["name"] == model.__name__, where
    _assert_same_fields(model, schema["fields"], named, where)


def _assert_same(hint: Any, schema: Any, named: Mapping[str, Any], where: str) -> None:
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated and args[0] is bytes:
        longest = {c.max_length for extra in args[1:] for c in extra.metadata if hasattr(c, "max_length")}
        assert (schema["type"], {schema["size"]}) == ("fixed", longest), where
    elif origin is typing.Annotated:
        _assert_same(args[0], schema, named, where)
    elif origin in (typing.Union, types.UnionType):
        assert schema[0] == "null", f"{where}: null comes first, so that null can be the default"
        assert len(schema) == len(args) == 2, where
        _assert_same(next(a for a in args if a is not type(None)), schema[1], named, where)
    elif origin is tuple:
        _assert_same(args[0], schema["items"], named, f"{where}[]")
    elif origin is Mapping:
        assert schema["type"] == "map", where
        _assert_same(args[1], schema["values"], named, f"{where}{{}}")
    elif issubclass(hint, values.Word):
        assert (schema["type"], schema["symbols"]) == ("enum", [word.value for word in hint]), where
    elif issubclass(hint, values.Value):
        _assert_same_record(hint, schema, named, where)
    else:
        assert schema == {str: "string", int: "long", bool: "boolean"}[hint], where


def _assert_default(kind: Any, default: Any, named: Mapping[str, Any], where: str) -> None:
    """A default belongs to the first branch of a union, and a record's has all of its fields."""
    first = kind[0] if isinstance(kind, list) else kind
    whole = named.get(first, first) if isinstance(first, str) else first
    if isinstance(whole, dict) and whole["type"] == "record":
        assert set(default) == {field["name"] for field in whole["fields"]}, where
        for field in whole["fields"]:
            _assert_default(field["type"], default[field["name"]], named, f"{where}.{field['name']}")
    elif isinstance(whole, dict) and whole["type"] == "enum":
        assert default in whole["symbols"], where
    elif isinstance(whole, dict) and whole["type"] in ("array", "map"):
        assert not default, f"{where}: a default that is empty stays true"
    else:
        assert fastavro.validate(default, whole, raise_errors=False), where
