"""FULL_TRANSITIVE compatibility: every version of a type reads every other one (DESIGN §4).

The rules are Avro's schema resolution, asked in both directions. Two are stricter here: names must agree with
their namespace, and aliases do not count, because other readers of the log may not honour them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

Avro = Any
"""A schema as JSON: a name, an object, or a list for a union."""

PROMOTED: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
"""What was written as the key may be read as the value. Only string and bytes work in both directions."""
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "enum", "fixed"})


class Incompatibility(NamedTuple):
    """`reader` is "new" or "old": which of the two cannot read what the other wrote. `at` is a dotted path."""

    reader: str
    at: str
    problem: str

    def __str__(self) -> str:
        writer = "old" if self.reader == "new" else "new"
        return f"the {self.reader} schema cannot read what the {writer} one writes: {self.at}: {self.problem}"


def check(old: Avro, new: Avro) -> list[Incompatibility]:
    """Everything that keeps either schema from reading the other's data; empty when both can."""
    forward = [Incompatibility("new", *found) for found in unreadable(writer=old, reader=new)]
    backward = [Incompatibility("old", *found) for found in unreadable(writer=new, reader=old)]
    return forward + backward


def unreadable(*, writer: Avro, reader: Avro) -> list[tuple[str, str]]:
    """(path, problem) for each place where the reader cannot take what the writer may have written."""
    resolution = _Resolution()
    wrote, reads = _expanded(writer, "", resolution.writer), _expanded(reader, "", resolution.reader)
    return list(resolution.problems(wrote, reads, _label(wrote)))


def _expanded(schema: Avro, space: str, names: dict[str, Avro]) -> Avro:
    """The schema with full names everywhere, its named types in `names`, and `{"type": x}` written as x."""
    if isinstance(schema, list):
        return [_expanded(branch, space, names) for branch in schema]
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES or "." in schema or not space else f"{space}.{schema}"
    kind = schema["type"]
    if kind == "array":
        return {"type": kind, "items": _expanded(schema["items"], space, names)}
    if kind == "map":
        return {"type": kind, "values": _expanded(schema["values"], space, names)}
    if kind not in _NAMED:
        return _expanded(kind, space, names)
    return _expanded_named(schema, schema.get("namespace", space), names)


def _expanded_named(schema: Mapping[str, Avro], space: str, names: dict[str, Avro]) -> Avro:
    name = schema["name"] if "." in schema["name"] or not space else f"{space}.{schema['name']}"
    known = names[name] = {**schema, "name": name}
    if schema["type"] == "record":
        inside = name.rpartition(".")[0]
        known["fields"] = [{**f, "type": _expanded(f["type"], inside, names)} for f in schema["fields"]]
    return known


def _kind(schema: Avro) -> str:
    return "union" if isinstance(schema, list) else schema if isinstance(schema, str) else schema["type"]


def _label(schema: Avro) -> str:
    """How a path or a message calls a schema."""
    return schema["name"].rpartition(".")[2] if _kind(schema) in _NAMED else _kind(schema)


class _Resolution:
    """One direction. `met` holds pairs of records that are being compared already: types may be recursive."""

    def __init__(self) -> None:
        self.writer: dict[str, Avro] = {}
        self.reader: dict[str, Avro] = {}
        self.met: set[tuple[str, str]] = set()

    def problems(self, writer: Avro, reader: Avro, at: str) -> Iterator[tuple[str, str]]:
        wrote, reads = self._resolved(writer, self.writer), self._resolved(reader, self.reader)
        if isinstance(wrote, list):
            for branch in wrote:
                yield from self.problems(branch, reads, at)
        elif isinstance(reads, list):
            yield from self._into_union(wrote, reads, at)
        elif not self._match(wrote, reads):
            yield at, f"{_label(wrote)} is not read as {_label(reads)}"
        else:
            yield from self._inside(wrote, reads, at)

    @staticmethod
    def _resolved(schema: Avro, names: Mapping[str, Avro]) -> Avro:
        return names.get(schema, schema) if isinstance(schema, str) else schema

    def _into_union(self, wrote: Avro, reads: list[Avro], at: str) -> Iterator[tuple[str, str]]:
        """Exact matches before promotions; the branch taken must then read everything inside."""
        branches = [self._resolved(branch, self.reader) for branch in reads]
        exact = [branch for branch in branches if _kind(branch) == _kind(wrote) and self._match(wrote, branch)]
        taken = next(iter([*exact, *(branch for branch in branches if self._match(wrote, branch))]), None)
        if taken is None:
            yield at, f"{_label(wrote)} is no branch of the union"
        else:
            yield from self._inside(wrote, taken, at)

    @staticmethod
    def _match(wrote: Avro, reads: Avro) -> bool:
        """Whether the two are the same type as far as it can be told without looking inside."""
        kinds = (_kind(wrote), _kind(reads))
        if kinds[0] in _NAMED and kinds[0] == kinds[1]:
            return bool(wrote["name"] == reads["name"])
        return kinds[0] == kinds[1] or kinds[1] in PROMOTED.get(kinds[0], ())

    def _inside(self, wrote: Avro, reads: Avro, at: str) -> Iterator[tuple[str, str]]:
        kind = _kind(wrote)
        if kind == "record":
            yield from self._fields(wrote, reads, at)
        elif kind == "array":
            yield from self.problems(wrote["items"], reads["items"], f"{at}[]")
        elif kind == "map":
            yield from self.problems(wrote["values"], reads["values"], f"{at}{{}}")
        elif kind == "fixed" and wrote["size"] != reads["size"]:
            yield at, f"{wrote['size']} bytes are not read as {reads['size']}"
        elif kind == "enum" and "default" not in reads:
            missing = [symbol for symbol in wrote["symbols"] if symbol not in reads["symbols"]]
            if missing:
                yield at, f"{', '.join(missing)} not known, and the enum has no default"

    def _fields(self, wrote: Avro, reads: Avro, at: str) -> Iterator[tuple[str, str]]:
        pair = (wrote["name"], reads["name"])
        if pair in self.met:
            return
        self.met.add(pair)
        written = {field["name"]: field for field in wrote["fields"]}
        for field in reads["fields"]:
            here = f"{at}.{field['name']}"
            if field["name"] in written:
                yield from self.problems(written[field["name"]]["type"], field["type"], here)
            elif "default" not in field:
                yield here, "not written by the other, and without a default"
