"""JSON schemas of tool arguments: what does not fit, in words a model can act on.

The keywords of JSON Schema that tools use. A schema with another one is refused when its tool is declared, so that
nothing is let pass by a rule that nobody looks at. `format` and the like describe; they check nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tracklog.schemas.errors import InvalidTool

__all__ = ["check_schema", "schema_problem"]

Schema = Any
"""A mapping, or true or false."""
Rule = Callable[[Any, Any], bool]

DEPTH_MAX: Final = 64
"""Levels of nesting, references followed: a schema may refer to itself."""
SHOWN_CHARS_MAX: Final = 60

_TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: _is_number(value),
    "integer": lambda value: _is_number(value) and value == value // 1,
}
_LIMITS: Final[Mapping[str, tuple[str, Rule, str]]] = {
    "minLength": ("string", lambda value, limit: len(value) >= limit, "has fewer than {} characters"),
    "maxLength": ("string", lambda value, limit: len(value) <= limit, "has more than {} characters"),
    "pattern": ("string", lambda value, pattern: re.search(pattern, value) is not None, "does not match {}"),
    "minItems": ("array", lambda value, limit: len(value) >= limit, "has fewer than {} items"),
    "maxItems": ("array", lambda value, limit: len(value) <= limit, "has more than {} items"),
    "minimum": ("number", lambda value, limit: value >= limit, "is below {}"),
    "maximum": ("number", lambda value, limit: value <= limit, "is above {}"),
    "exclusiveMinimum": ("number", lambda value, limit: value > limit, "is not above {}"),
    "exclusiveMaximum": ("number", lambda value, limit: value < limit, "is not below {}"),
}
"""Keyword -> the type it is about, when it holds, what is said when it does not."""
_CHOICES: Final[Mapping[str, tuple[Callable[[int, int], bool], str]]] = {
    "allOf": (lambda fitting, among: fitting == among, "does not fit all of the {} forms it must have"),
    "anyOf": (lambda fitting, among: fitting > 0, "fits none of the {} forms it may have"),
    "oneOf": (lambda fitting, among: fitting == 1, "does not fit exactly one of the {} forms it may have"),
}
_WORDS: Final = (
    *("title", "description", "default", "examples", "format", "deprecated", "readOnly", "writeOnly"),
    *("$schema", "$id", "$comment", "contentEncoding", "contentMediaType"),
)
_NESTED: Final = ("items", "additionalProperties")
_NAMED: Final = ("properties", "$defs", "definitions")
_VALUES: Final = ("type", "enum", "const", "required", "$ref")
_KNOWN: Final = frozenset((*_LIMITS, *_CHOICES, *_WORDS, *_NESTED, *_NAMED, *_VALUES))


def check_schema(tool: str, schema: Schema) -> None:
    """Raises InvalidTool, naming the tool and the place, for a schema that arguments could not be held to."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise InvalidTool(f"the schema of tool {tool!r} is not of an object", hint='{"type": "object", ...}')
    try:
        _check(schema, schema, "schema", 0)
    except ValueError as error:
        raise InvalidTool(f"the schema of tool {tool!r} is not understood: {error}") from None


def schema_problem(schema: Schema, value: Any) -> str:
    """The first thing that does not fit, "" for nothing. `value` is JSON as Python reads it."""
    return next(_misfits(schema, schema, value, "", 0), "")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check(root: Schema, schema: Schema, where: str, depth: int) -> None:
    """Raises ValueError."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping) or depth > DEPTH_MAX:
        raise ValueError(f"{where} is no schema" if depth <= DEPTH_MAX else f"{where} is nested too deeply")
    unknown = sorted(set(schema) - _KNOWN)
    if unknown:
        raise ValueError(f"{where} uses {', '.join(unknown)}")
    _check_values(root, schema, where)
    for keyword in _CHOICES:
        for number, one in enumerate(schema.get(keyword, ())):
            _check(root, one, f"{where}.{keyword}.{number}", depth + 1)
    for keyword in _NESTED:
        _check(root, schema.get(keyword, True), f"{where}.{keyword}", depth + 1)
    for keyword in _NAMED:
        for name, one in dict(schema.get(keyword, {})).items():
            _check(root, one, f"{where}.{keyword}.{name}", depth + 1)


def _check_values(root: Schema, schema: Mapping[str, Any], where: str) -> None:
    strange = [name for name in _type_names(schema) if name not in _TYPES]
    if strange:
        raise ValueError(f"{where} has the type {strange[0]!r}")
    if "$ref" in schema and _referred(root, schema["$ref"]) is None:
        raise ValueError(f"{where} refers to {schema['$ref']!r}, which is not in it")
    for keyword in ("enum", "required"):
        if not isinstance(schema.get(keyword, []), list):
            raise ValueError(f"{where}.{keyword} is no list")
    try:
        re.compile(schema.get("pattern", ""))
    except (re.error, TypeError) as error:
        raise ValueError(f"{where}.pattern: {error}") from None
    for keyword in _LIMITS:
        if keyword != "pattern" and not _is_number(schema.get(keyword, 0)):
            raise ValueError(f"{where}.{keyword} is no number")


def _misfits(root: Schema, schema: Schema, value: Any, where: str, depth: int) -> Iterator[str]:
    if schema is True:
        return
    if schema is False or depth > DEPTH_MAX:
        yield _said(where, "is not allowed" if schema is False else "is nested too deeply")
        return
    if "$ref" in schema:
        yield from _misfits(root, _referred(root, schema["$ref"]), value, where, depth + 1)
    names = _type_names(schema)
    if names and not any(_TYPES[name](value) for name in names):
        yield _said(where, f"is {_shown(value)}, not of type {' or '.join(names)}")
        return
    yield from (_said(where, words) for words in _value_misfits(schema, value))
    for keyword, (holds, words) in _CHOICES.items():
        forms = schema.get(keyword, ())
        fitting = sum(next(_misfits(root, one, value, where, depth + 1), "") == "" for one in forms)
        if forms and not holds(fitting, len(forms)):
            yield _said(where, words.format(len(forms)))
    if isinstance(value, Mapping):
        yield from _field_misfits(root, schema, value, where, depth)
    if isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from _misfits(root, schema["items"], item, _below(where, number), depth + 1)


def _value_misfits(schema: Mapping[str, Any], value: Any) -> Iterator[str]:
    if "enum" in schema and not any(_same(value, one) for one in schema["enum"]):
        yield f"is {_shown(value)}, not one of {_shown(schema['enum'])}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"is {_shown(value)}, not {_shown(schema['const'])}"
    for keyword, (kind, holds, words) in _LIMITS.items():
        if keyword in schema and _TYPES[kind](value) and not holds(value, schema[keyword]):
            yield words.format(schema[keyword])


def _field_misfits(
    root: Schema, schema: Mapping[str, Any], value: Mapping[str, Any], where: str, depth: int
) -> Iterator[str]:
    fields = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield _said(_below(where, name), "is missing")
    for name, one in value.items():
        rule = fields[name] if name in fields else schema.get("additionalProperties", True)
        if rule is False:
            yield _said(_below(where, name), "is not known")
        else:
            yield from _misfits(root, rule, one, _below(where, name), depth + 1)


def _type_names(schema: Mapping[str, Any]) -> list[str]:
    names = schema.get("type", [])
    return list(names) if isinstance(names, list) else [names]


def _referred(root: Schema, reference: object) -> Schema | None:
    """What `#/a/b` means, None when it is not there."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found = root
    for part in reference[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def _same(one: Any, other: Any) -> bool:
    """As JSON sees it: true is not 1."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."


def _below(where: str, name: object) -> str:
    return f"{where}.{name}" if where else str(name)


def _said(where: str, words: str) -> str:
    return f"{where}: {words}" if where else words
