"""The compatibility check says what fastavro does when it reads."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.schemas.avro_data import all_data, fastavro_reads
from tracklog.schemas.compat import unreadable

PRIMITIVES = ("boolean", "int", "long", "double", "string", "bytes")
NAMES = ("a", "b", "c")


@st.composite
def types(draw: st.DrawFn, path: str, depth: int) -> Any:
    """A type; names in it come from where it stands, so that the same place has the same name in two schemas."""
    kinds = ["primitive", "enum", "fixed", *(["array", "map", "option", "record"] if depth else [])]
    kind = draw(st.sampled_from(kinds))
    if kind == "primitive":
        return draw(st.sampled_from(PRIMITIVES))
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from(["X", "Y", "Z"]), min_size=1, unique=True))
        return {
            "type": "enum",
            "name": f"E{path}",
            "symbols": symbols,
            **draw(st.sampled_from([{}, {"default": symbols[0]}])),
        }
    if kind == "fixed":
        return {"type": "fixed", "name": f"F{path}", "size": draw(st.sampled_from([2, 2, 3]))}
    if kind == "record":
        return draw(records(path, depth - 1))
    inner = draw(types(path + "i", depth - 1))
    if kind == "option":
        return inner if isinstance(inner, list) else ["null", inner]
    return {"type": kind, "items" if kind == "array" else "values": inner}


@st.composite
def records(draw: st.DrawFn, path: str = "", depth: int = 2) -> Any:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=2))
    return {"type": "record", "name": f"R{path}", "fields": [_field(draw, name, path, depth) for name in names]}


def _field(draw: st.DrawFn, name: str, path: str, depth: int) -> Any:
    kind = draw(types(path + name, depth))
    return {"name": name, "type": kind, **(_default(kind) if draw(st.booleans()) else {})}


def _default(kind: Any) -> dict[str, Any]:
    first = next(all_data(kind))
    return {"default": None if isinstance(kind, list) else _as_json(first)}


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list) else value


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two schemas of one record: fields kept, changed, added and dropped."""
    old = draw(records())
    new = []
    for field in old["fields"]:
        change = draw(st.sampled_from(["keep", "keep", "retype", "drop"]))
        if change != "drop":
            new.append(field if change == "keep" else _field(draw, field["name"], "", 2))
    taken = {field["name"] for field in old["fields"]}
    added = [name for name in NAMES if name not in taken and draw(st.integers(0, 2)) == 0]
    new += [_field(draw, name, "", 1) for name in added]
    return old, {**old, "fields": new}


@settings(max_examples=120)
@given(pairs())
def test_the_check_says_what_fastavro_does(pair: tuple[Any, Any]) -> None:
    for writer, reader in (pair, pair[::-1]):
        problems = unreadable(writer=writer, reader=reader)
        event("unreadable" if problems else "readable")

        assert fastavro_reads(writer=writer, reader=reader) is not bool(problems), problems
