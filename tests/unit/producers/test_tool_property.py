"""Whatever a model writes as arguments, and whatever a tool returns, there is a result that can be recorded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tracklog.infra.clock import ManualClock
from tracklog.producers.tool_run import run_tool
from tracklog.producers.tool_schema import check_schema, schema_problem
from tracklog.producers.tools import CallContext, tool
from tracklog.schemas.values import Body, ResultStatus

CONTEXT = CallContext("t", "c1", "k", 1, 1, 2**62)
ANY_TEXT = st.text(st.sampled_from("ab{\u00e9\ud800\udfff\U0001f600\x00") | st.characters(), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(arguments=ANY_TEXT | JSON.map(json.dumps), value=JSON | st.binary() | st.sets(st.integers()))
@settings(max_examples=100, deadline=None)
def test_any_arguments_and_any_output_come_to_a_result_that_fits_an_event(arguments: str, value: Any) -> None:
    @tool
    async def echo(a: Any = None, b: int = 0) -> Any:
        return value

    got = asyncio.run(run_tool(echo, CONTEXT, arguments, clock=ManualClock(), output_bytes_max=200))

    assert got.status in (ResultStatus.OK, ResultStatus.ERROR)
    assert len(got.output.encode()) <= 200
    assert Body.of(got.output).whole


@given(text=ANY_TEXT, repeat=st.integers(1, 50), limit=st.integers(0, 120))
@settings(max_examples=100, deadline=None)
def test_an_output_is_whole_or_says_that_it_was_cut(text: str, repeat: int, limit: int) -> None:
    @tool
    async def give() -> str:
        return text * repeat

    got = asyncio.run(run_tool(give, CONTEXT, "{}", clock=ManualClock(), output_bytes_max=limit)).output

    assert len(got.encode()) <= limit
    clean = "".join("\ufffd" if "\ud800" <= one <= "\udfff" else one for one in text * repeat)
    assert got == clean or got.endswith("characters]") or len(got.encode()) == limit


TYPES: list[Any] = [
    int,
    str,
    bool,
    None,
    list[int],
    list[list[str]],
    dict[str, int],
    int | str,
    list[int] | None,
    dict[str, list[bool | None]],
]


@pytest.mark.parametrize("type_", TYPES, ids=str)
@given(value=JSON)
@settings(max_examples=50, deadline=None)
def test_a_schema_and_its_type_are_of_one_mind(type_: Any, value: Any) -> None:
    """The schema check against an independent judge: the validator that the schema was written by."""
    adapter: TypeAdapter[Any] = TypeAdapter(type_)
    schema: Mapping[str, Any] = {"type": "object", "properties": {"x": adapter.json_schema()}}
    check_schema("t", schema)
    if _has_whole_floats(value):
        return  # 3.0 is an integer of JSON Schema, and none of Python
    try:
        adapter.validate_python(value, strict=True)
        fits = True
    except ValidationError:
        fits = False

    assert (schema_problem(schema, {"x": value}) == "") == fits


def _has_whole_floats(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_has_whole_floats, inner))
