"""Declaring tools: what a class needs, what models are told, and that none runs outside of a session."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest

from tracklog.producers.tools import CallContext, ProbeAnswer, Probed, Tool, ToolSet, tool
from tracklog.schemas.errors import InvalidTool, ToolOutsideSession
from tracklog.schemas.values import Effect

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


async def nothing(context: CallContext, arguments: Mapping[str, Any]) -> None:
    return None


def made(**changes: Any) -> Tool:
    return Tool(**{"name": "weather", "description": "", "schema": SCHEMA, "call": nothing, **changes})


def test_a_tool_that_declares_nothing_is_opaque() -> None:
    @tool
    def pay(amount: int) -> str:
        return ""

    assert pay.effect is Effect.OPAQUE
    assert pay.name == "pay"


def test_a_tool_called_directly_raises_and_says_the_way_out() -> None:
    ran = []

    @tool(effect="readonly")
    def look(what: str) -> None:
        ran.append(what)

    with pytest.raises(ToolOutsideSession, match=r"session\.call_tool"):
        look("x")

    assert ran == []


@pytest.mark.parametrize("word", ["opaque", "readonly", "local"])
def test_classes_that_need_nothing_are_declared_by_their_word(word: str) -> None:
    assert made(effect=word).effect is Effect(word)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"effect": "harmless"}, "'harmless'"),
        ({"effect": "idempotent"}, "key_ttl_s"),
        ({"effect": "idempotent", "key_ttl_s": 0.0}, "key_ttl_s"),
        ({"effect": "idempotent", "key_ttl_s": math.inf}, "key_ttl_s"),
        ({"effect": "probe"}, "no probe"),
        ({"timeout_s": 0.0}, "timeout_s"),
        ({"timeout_s": math.inf}, "timeout_s"),
        ({"timeout_s": math.nan}, "timeout_s"),
        ({"name": ""}, "no name"),
        ({"name": "two words"}, "no name"),
        ({"name": "x" * 65}, "no name"),
        ({"schema": {"type": "string"}}, "not of an object"),
        ({"schema": {"type": "object", "default": {1, 2}}}, "not JSON"),
    ],
)
def test_what_cannot_be_kept_to_is_refused_when_it_is_declared(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidTool, match=words):
        made(**changes)


def test_an_unknown_class_is_refused_by_the_decorator_too() -> None:
    with pytest.raises(InvalidTool, match="harmless"):

        @tool(effect="harmless")
        def look() -> None: ...


def test_the_version_follows_name_schema_and_class_and_nothing_else() -> None:
    first = made()

    assert made(description="other words", timeout_s=1.0).version == first.version
    assert len(first.version) == 16
    changed = {made(name="other").version, made(effect="local").version, made(schema={"type": "object"}).version}
    assert len(changed | {first.version}) == 4


def test_the_order_of_a_schema_s_keys_does_not_change_the_version() -> None:
    assert made(schema=dict(reversed(SCHEMA.items()))).version == made().version


def test_a_set_tells_models_of_its_tools_by_name_whatever_their_order() -> None:
    one, two = made(name="a", description="First."), made(name="b")

    tools = ToolSet.of(two, one)

    assert tools.names == ("a", "b")
    assert tools.schemas_json() == ToolSet.of(one, two).schemas_json()
    first = json.loads(tools.schemas_json())[0]
    assert first == {"type": "function", "function": {"name": "a", "description": "First.", "parameters": SCHEMA}}
    assert json.loads(tools.schemas_json()) == list(tools.definitions)


def test_a_set_finds_its_tools_and_has_none_of_a_name_that_was_made_up() -> None:
    one = made(name="a")

    tools = ToolSet.of(one)

    assert tools.get("a") is one
    assert tools.get("b") is None
    assert list(tools) == [one]
    assert len(ToolSet.of()) == 0


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidTool, match="'weather'"):
        ToolSet.of(made(), made(description="other"))


@pytest.mark.parametrize("answer", ["perhaps", None, True])
def test_a_probe_answers_in_its_three_words_only(answer: Any) -> None:
    with pytest.raises(ValueError, match="ProbeAnswer"):
        Probed(answer)


def test_a_probe_s_output_is_text() -> None:
    with pytest.raises(TypeError):
        Probed(ProbeAnswer.HAPPENED, 3)  # type: ignore[arg-type]
