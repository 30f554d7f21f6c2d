"""The calls in a model's message: whatever a model writes, each has an id of its own."""

from __future__ import annotations

from typing import Any

import pytest

from tracklog.producers.models import ARGUMENTS_BYTES_MAX, calls_of, used_call_ids, with_call_ids
from tracklog.schemas.errors import ModelMalformed
from tracklog.schemas.events import ModelReplied
from tracklog.schemas.limits import CALLS_PER_TURN_MAX
from tracklog.schemas.values import Body, ToolCall


def call(call_id: Any, name: Any = "find", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asking(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def ids(message: dict[str, Any], used: set[str] | None = None) -> list[str]:
    return [one.call_id for one in calls_of(message, used or set())]


@pytest.mark.parametrize("message", [{"content": "x"}, {"tool_calls": None}, {"tool_calls": []}])
def test_a_message_without_calls_has_none(message: dict[str, Any]) -> None:
    assert calls_of(message) == ()
    assert with_call_ids(message, ()) == message


def test_arguments_stay_the_text_they_are() -> None:
    (one,) = calls_of(asking(call("c1", "find", '{"a": 1,}')))

    assert one == ToolCall(call_id="c1", tool="find", arguments='{"a": 1,}')


@pytest.mark.parametrize(("arguments", "text"), [(None, ""), ({"a": 1}, '{"a":1}')])
def test_servers_that_give_objects_or_nothing_are_understood(arguments: Any, text: str) -> None:
    assert calls_of(asking(call("c1", "find", arguments)))[0].arguments == text


@pytest.mark.parametrize(
    ("given", "used", "expected"),
    [
        (["a", "b"], [], ["a", "b"]),
        (["a", "a", "a"], [], ["a", "a~2", "a~3"]),
        (["a", "a~2", "a"], [], ["a", "a~2", "a~3"]),
        (["a"], ["a"], ["a~2"]),
        (["a"], ["a", "a~2"], ["a~3"]),
        ([None, "", 3], [], ["call-1", "call-2", "call-3"]),
        ([None], ["call-1"], ["call-1~2"]),
        (["x" * 5000, "b"], [], ["call-1", "b"]),
    ],
)
def test_ids_that_are_missing_or_taken_are_made_unique(given: list[Any], used: list[str], expected: list[str]) -> None:
    assert ids(asking(*map(call, given)), set(used)) == expected


def test_calls_with_one_id_make_an_event_that_can_exist_and_contexts_that_an_endpoint_takes() -> None:
    message = asking(call("a", "find"), call("a", "open"))

    calls = calls_of(message)

    assert len(ModelReplied(reply=Body.of("{}"), tool_calls=calls).tool_calls) == 2
    shown = with_call_ids(message, calls)
    assert [one["id"] for one in shown["tool_calls"]] == ["a", "a~2"]
    assert [one["function"]["name"] for one in shown["tool_calls"]] == ["find", "open"]
    assert [one["id"] for one in message["tool_calls"]] == ["a", "a"], "the reply itself stays verbatim"
    assert used_call_ids([{"role": "user", "content": "x"}, shown, {"tool_calls": [{}, None]}]) == {"a", "a~2"}


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"tool_calls": "find"}, "no list"),
        ({"tool_calls": {"id": "a"}}, "no list"),
        (asking("find"), "no function"),
        (asking({"id": "a", "type": "custom", "custom": {}}), "no function"),
        (asking(call("a", "")), "names no tool"),
        (asking(call("a", None)), "names no tool"),
        (asking(call("a", "x" * 5000)), "names no tool"),
        (asking(*(call(str(n)) for n in range(CALLS_PER_TURN_MAX + 1))), "129 calls"),
        (asking(call("a", "find", "x" * (ARGUMENTS_BYTES_MAX + 1))), "bytes of arguments"),
    ],
)
def test_what_is_no_call_is_malformed(message: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelMalformed, match=words):
        calls_of(message)
