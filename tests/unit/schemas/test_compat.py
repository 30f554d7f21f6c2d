"""Versions of a type read each other, and a change that breaks this is found."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.unit.schemas.avro_data import fastavro_reads
from tracklog.schemas import catalog
from tracklog.schemas.catalog import KIND_OF
from tracklog.schemas.compat import Incompatibility, check

FIXED_2: Any = {"type": "fixed", "name": "F", "size": 2}
FIXED_3: Any = {"type": "fixed", "name": "F", "size": 3}
XY: Any = {"type": "enum", "name": "E", "symbols": ["X", "Y"]}
XYZ: Any = {"type": "enum", "name": "E", "symbols": ["X", "Y", "Z"]}
XY_OR_X: Any = {**XY, "default": "X"}


def record(name: str, *fields: Any) -> Any:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **default: Any) -> Any:
    return {"name": name, "type": kind, **default}


def holding(kind: Any) -> Any:
    return record("R", field("a", kind))


def array(items: Any) -> Any:
    return {"type": "array", "items": items}


def mapping(values: Any) -> Any:
    return {"type": "map", "values": values}


BOTH, NEW, OLD = {"new", "old"}, {"new"}, {"old"}
INCOMPATIBLE: dict[str, tuple[Any, Any, set[str], str]] = {
    "a field added without a default": (record("R"), holding("long"), NEW, "R.a"),
    "a field dropped that had no default": (holding("long"), record("R"), OLD, "R.a"),
    "a field renamed": (holding("long"), record("R", field("b", "long")), BOTH, "R.b"),
    "a field of another type": (holding("long"), holding("string"), BOTH, "R.a"),
    "a long narrowed to an int": (holding("long"), holding("int"), NEW, "R.a"),
    "an int widened to a long": (holding("int"), holding("long"), OLD, "R.a"),
    "a long widened to a double": (holding("long"), holding("double"), OLD, "R.a"),
    "a type made optional": (holding("long"), holding(["null", "long"]), OLD, "R.a"),
    "an option made required": (holding(["null", "long"]), holding("long"), NEW, "R.a"),
    "a union with one branch less": (holding(["null", "long", "string"]), holding(["null", "long"]), NEW, "R.a"),
    "a symbol added without a default": (holding(XY), holding(XYZ), OLD, "R.a"),
    "a symbol dropped without a default": (holding(XYZ), holding(XY), NEW, "R.a"),
    "a symbol added with a default on one side": (
        holding(XYZ),
        holding({**XYZ, "symbols": ["W"], "default": "W"}),
        OLD,
        "R.a",
    ),
    "an enum renamed": (holding(XY), holding({**XY, "name": "G"}), BOTH, "R.a"),
    "a fixed of another size": (holding(FIXED_2), holding(FIXED_3), BOTH, "R.a"),
    "a fixed renamed": (holding(FIXED_2), holding({**FIXED_2, "name": "G"}), BOTH, "R.a"),
    "a record renamed": (holding("long"), {**holding("long"), "name": "S"}, BOTH, "R"),
    "an inner record renamed": (holding(record("S")), holding(record("T")), BOTH, "R.a"),
    "inside an inner record": (holding(record("S")), holding(record("S", field("b", "long"))), NEW, "R.a.b"),
    "inside an array": (holding(array("long")), holding(array("string")), BOTH, "R.a[]"),
    "inside a map": (holding(mapping("long")), holding(mapping("string")), BOTH, "R.a{}"),
    "an array made a map": (holding(array("long")), holding(mapping("long")), BOTH, "R.a"),
    "inside the branch of a union": (
        holding(["null", record("S")]),
        holding(["null", record("S", field("b", "long"))]),
        NEW,
        "R.a.b",
    ),
    "behind a name": (
        record("R", field("a", FIXED_2), field("b", "F")),
        record("R", field("a", FIXED_2), field("b", {**FIXED_2, "name": "G"})),
        BOTH,
        "R.b",
    ),
}
COMPATIBLE: dict[str, tuple[Any, Any]] = {
    "the same": (holding(["null", XY]), holding(["null", XY])),
    "a field added with a default": (record("R"), record("R", field("a", "long", default=0))),
    "a field dropped that had a default": (record("R", field("a", ["null", "long"], default=None)), record("R")),
    "fields in another order": (
        record("R", field("a", "long"), field("b", "string")),
        record("R", field("b", "string"), field("a", "long")),
    ),
    "a default changed": (record("R", field("a", "long", default=0)), record("R", field("a", "long", default=1))),
    "string and bytes": (holding("string"), holding("bytes")),
    "a symbol added, with a default on both sides": (holding(XY_OR_X), holding({**XYZ, "default": "X"})),
    "the branches of a union in another order": (holding(["null", "long"]), holding(["long", "null"])),
    "a union of one": (holding("long"), holding(["long"])),
    "a type written with braces": (holding("long"), holding({"type": "long"})),
}


@pytest.mark.parametrize(("old", "new", "readers", "at"), INCOMPATIBLE.values(), ids=INCOMPATIBLE)
def test_an_incompatible_change_is_found_where_it_is(old: Any, new: Any, readers: set[str], at: str) -> None:
    found = check(old, new)

    assert {each.reader for each in found} == readers
    assert at in {each.at for each in found}


@pytest.mark.parametrize(("old", "new", "readers", "at"), INCOMPATIBLE.values(), ids=INCOMPATIBLE)
def test_fastavro_fails_on_it_too(old: Any, new: Any, readers: set[str], at: str) -> None:
    fails = {"new"} if not fastavro_reads(writer=old, reader=new) else set()
    fails |= {"old"} if not fastavro_reads(writer=new, reader=old) else set()

    assert fails == readers, at


@pytest.mark.parametrize(("old", "new"), COMPATIBLE.values(), ids=COMPATIBLE)
def test_a_compatible_change_passes_and_fastavro_reads_it(old: Any, new: Any) -> None:
    assert check(old, new) == []
    assert fastavro_reads(writer=old, reader=new)
    assert fastavro_reads(writer=new, reader=old)


def test_a_name_in_another_namespace_is_another_name() -> None:
    """Stricter than fastavro, which looks at the last part only."""
    old, new = {**holding("long"), "namespace": "one"}, {**holding("long"), "namespace": "two"}

    assert [each.problem for each in check(old, new)] == ["R is not read as R"] * 2


def test_a_type_that_contains_itself_is_compared_once() -> None:
    tree = record("Tree", field("next", ["null", "Tree"]))
    other = record("Tree", field("next", ["null", "Tree"]), field("size", "long"))

    assert check(tree, tree) == []
    assert check(tree, other) == [
        Incompatibility("new", "Tree.size", "not written by the other, and without a default")
    ]


def test_an_incompatibility_prints_what_to_look_at() -> None:
    assert [str(each) for each in check(holding(FIXED_2), holding(FIXED_3))] == [
        "the new schema cannot read what the old one writes: R.a: 2 bytes are not read as 3",
        "the old schema cannot read what the new one writes: R.a: 3 bytes are not read as 2",
    ]


@pytest.mark.parametrize("name", KIND_OF)
def test_all_versions_of_a_type_read_each_other(name: str) -> None:
    """FULL_TRANSITIVE: every pair, not only neighbours."""
    texts = [json.loads(schema.text) for schema in catalog.versions(name)]

    assert [found for old, new in itertools.combinations(texts, 2) for found in check(old, new)] == []


@pytest.mark.parametrize("name", KIND_OF)
def test_a_change_of_a_real_type_is_found(name: str) -> None:
    """The check reaches into every field of every type as it is: each one changed, one after another."""
    raw = json.loads(catalog.newest(name).text)

    assert check(raw, raw) == []
    for number, each in enumerate(raw["fields"]):
        fields = [*raw["fields"]]
        fields[number] = {**each, "type": {**FIXED_2, "name": "Never"}}
        found = check(raw, {**raw, "fields": fields})
        assert f"{name}.{each['name']}" in {problem.at for problem in found}
