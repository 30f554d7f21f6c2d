"""JSON schemas of arguments: what fits, what does not, and which schemas are understood at all."""

from __future__ import annotations

from typing import Any

import pytest

from tracklog.producers.tool_schema import check_schema, schema_problem
from tracklog.schemas.errors import InvalidTool

TREE = {
    "type": "object",
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["name"]}},
    "properties": {"root": {"$ref": "#/$defs/node"}},
}


def of(field: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": field}, **more}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (of({"type": "string"}), {"x": ""}),
        (of({"type": "string"}), {}),
        (of({"type": "string"}), {"y": 1}),
        (of({"type": "integer"}), {"x": 3.0}),
        (of({"type": "number"}), {"x": 10**400}),
        (of({"type": ["string", "null"]}), {"x": None}),
        (of({"type": "string", "format": "date", "title": "X"}), {"x": "soon"}),
        (of({"enum": ["a", 1, None]}), {"x": None}),
        (of({"const": {"a": [1]}}), {"x": {"a": [1]}}),
        (of({"minimum": 1, "maximum": 2}), {"x": "not a number"}),
        (of({"minLength": 2, "maxLength": 3, "pattern": "b"}), {"x": "ab"}),
        (of({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}), {"x": [1, 2]}),
        (of({"anyOf": [{"type": "string"}, {"minimum": 3, "type": "integer"}]}), {"x": 3}),
        (of({"oneOf": [{"type": "integer"}, {"type": "string"}]}), {"x": 1}),
        (of({"allOf": [{"minimum": 1}, {"maximum": 1}]}), {"x": 1}),
        (of(True, additionalProperties={"type": "integer"}), {"x": "any", "y": 1}),
        (TREE, {"root": {"name": "a", "next": {"name": "b"}}}),
    ],
)
def test_what_fits_has_no_problem(schema: Any, value: Any) -> None:
    check_schema("t", schema)

    assert schema_problem(schema, value) == ""


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        (of({"type": "string"}), {"x": 1}, "x: is 1, not of type string"),
        (of({"type": "integer"}), {"x": True}, "x: is true, not of type integer"),
        (of({"type": "integer"}), {"x": 1.5}, "x: is 1.5, not of type integer"),
        (of({"type": ["string", "null"]}), {"x": []}, "x: is [], not of type string or null"),
        (of({"type": "string"}, required=["x"]), {}, "x: is missing"),
        (of({"type": "string"}, additionalProperties=False), {"y": 1}, "y: is not known"),
        (of(False), {"x": 1}, "x: is not known"),
        (of(True, additionalProperties={"type": "integer"}), {"y": "a"}, 'y: is "a", not of type integer'),
        (of({"enum": ["a", 1]}), {"x": True}, 'x: is true, not one of ["a", 1]'),
        (of({"const": "a"}), {"x": "b"}, 'x: is "b", not "a"'),
        (of({"minimum": 1}), {"x": 0}, "x: is below 1"),
        (of({"maximum": 1}), {"x": 2}, "x: is above 1"),
        (of({"exclusiveMinimum": 1}), {"x": 1}, "x: is not above 1"),
        (of({"exclusiveMaximum": 1}), {"x": 1}, "x: is not below 1"),
        (of({"minLength": 2}), {"x": "a"}, "x: has fewer than 2 characters"),
        (of({"maxLength": 1}), {"x": "ab"}, "x: has more than 1 characters"),
        (of({"pattern": "^b"}), {"x": "ab"}, "x: does not match ^b"),
        (of({"minItems": 1}), {"x": []}, "x: has fewer than 1 items"),
        (of({"maxItems": 0}), {"x": [1]}, "x: has more than 0 items"),
        (of({"items": {"type": "integer"}}), {"x": [1, "a"]}, 'x.1: is "a", not of type integer'),
        (of({"anyOf": [{"type": "string"}, {"type": "null"}]}), {"x": 3}, "x: fits none of the 2 forms"),
        (of({"oneOf": [{"type": "integer"}, {"minimum": 1}]}), {"x": 1}, "x: does not fit exactly one of the 2"),
        (of({"allOf": [{"minimum": 1}, {"maximum": 1}]}), {"x": 2}, "x: does not fit all of the 2 forms"),
        (TREE, {"root": {"name": "a", "next": {}}}, "root.next.name: is missing"),
        (of({"const": "a" * 500}), {"x": "b" * 500}, "..."),
    ],
)
def test_what_does_not_fit_is_said_with_its_place(schema: Any, value: Any, words: str) -> None:
    check_schema("t", schema)

    assert words in schema_problem(schema, value)


def test_arguments_nested_beyond_all_bounds_are_refused_and_do_not_end_the_process() -> None:
    deep: dict[str, Any] = {"name": "x"}
    for _ in range(500):
        deep = {"name": "x", "next": deep}

    assert "nested too deeply" in schema_problem(TREE, {"root": deep})


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({}, "not of an object"),
        ([], "not of an object"),
        (of({"multipleOf": 2}), "schema.properties.x uses multipleOf"),
        (of({"if": {}, "then": {}}), "uses if, then"),
        (of({"type": "text"}), "the type 'text'"),
        (of({"$ref": "#/$defs/none"}), "'#/\\$defs/none'"),
        (of({"$ref": "other.json"}), "'other.json'"),
        (of({"pattern": "("}), "pattern"),
        (of({"minimum": "1"}), "minimum is no number"),
        (of({"enum": "ab"}), "enum is no list"),
        (of("string"), "is no schema"),
        (of({"anyOf": [{"type": "text"}]}), r"anyOf\.0"),
        (of({"items": {"type": "text"}}), r"x\.items"),
    ],
)
def test_a_schema_that_would_not_be_held_to_is_refused(schema: Any, words: str) -> None:
    with pytest.raises(InvalidTool, match=words):
        check_schema("t", schema)


def test_a_schema_that_means_itself_is_followed_no_deeper_than_its_bound() -> None:
    loop = of({"$ref": "#/properties/x"})
    check_schema("t", loop)

    assert "nested too deeply" in schema_problem(loop, {"x": 1})
