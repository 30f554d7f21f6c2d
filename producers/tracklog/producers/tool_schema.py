"""JSON schemas of tool arguments: what does not fit, in words a model can act on.

The keywords of JSON Schema that tools use; a schema with another one is refused when the tool is declared, so
that nothing is ever let pass by a rule that is not looked at. `format` and the like describe and do not check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tracklog.schemas.errors import InvalidTool

__all__ = ["check_schema", "schema_problem"]

Schema = Any
"""A mapping, or true or false."""
DEPTH_MAX: Final = 64
"""Levels of nesting, references followed: a schema may refer to itself, arguments end."""

_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: not isinstance(value, bool)
    and (isinstance(value, int) or (isinstance(value, float) and value.is_integer())),
}
_SIZES: Final[Mapping[str, tuple[type | tuple[type, ...], Callable[[Any, Any], bool], str]]] = {
    "minLength": (str, lambda value, limit: len(value) >= limit, "has fewer than {} characters"),
    "maxLength": (str, lambda value, limit: len(value) <= limit, "has more than {} characters"),
    "minItems": (list, lambda value, limit: len(value) >= limit, "has fewer than {} items"),
    "maxItems": (list, lambda value, limit: len(value) <= limit, "has more than {} items"),
    "minProperties": (Mapping, lambda value, limit: len(value) >= limit, "has fewer than {} fields"),
    "maxProperties": (Mapping, lambda value, limit: len(value) <= limit, "has more than {} fields"),
    "minimum": ((int, float), lambda value, limit: value >= limit, "is below {}"),
    "maximum": ((int, float), lambda value, limit: value <= limit, "is above {}"),
    "exclusiveMinimum": ((int, float), lambda value, limit: value > limit, "is not above {}"),
    "exclusiveMaximum": ((int, float), lambda value, limit: value < limit, "is not below {}"),
    "multipleOf": ((int, float), lambda value, step: value % step == 0, "is no multiple of {}"),
    "pattern": (str, lambda value, pattern: re.search(pattern, value) is not None, "does not match {}"),
}
_MANY: Final = ("anyOf", "oneOf", "allOf")
_ONE: Final = ("items", "additionalProperties", "not", "propertyNames")
_NAMED: Final = ("properties", "$defs", "definitions")
_VALUES: Final = ("type", "enum", "const", "required", "uniqueItems", "$ref")
_WORDS: Final = (
    *("title", "description", "default", "examples", "format", "deprecated", "readOnly", "writeOnly"),
    *("$schema", "$id", "$comment", "contentEncoding", "contentMediaType", "discriminator"),
)
_KNOWN: Final = frozenset((*_SIZES, *_MANY, *_ONE, *_NAMED, *_VALUES, *_WORDS))


def check_schema(tool: str, schema: Schema) -> None:
    """Raises InvalidTool, naming the tool and the place, for a schema that could not be held to."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise InvalidTool(f"the schema of tool {tool!r} is not of an object", hint='{"type": "object", ...}')


def schema_problem(schema: Schema, value: Any) -> str:
    """What does not fit, "" for nothing. `value` is JSON as Python reads it."""
    return ""
