"""Completions as endpoints send them, whole or in chunks, and every way in which they can be none."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tracklog.producers import model_completion
from tracklog.producers.model_completion import Chunks, Prices, answer_of, loaded
from tracklog.producers.models import ModelRequest
from tracklog.schemas.errors import ModelMalformed
from tracklog.schemas.values import ToolCall, Usage

REQUEST = ModelRequest(messages=({"role": "user", "content": "hello"},))
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}


def completion(message: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m-1", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **more}


def test_the_message_is_kept_verbatim_with_what_else_is_in_it() -> None:
    message = {"role": "assistant", "content": "hi", "refusal": None, "reasoning_content": "hm", "x": [1]}

    answer = answer_of(completion(message), REQUEST, seed=7, duration_ms=12)

    assert answer.message == message
    assert (answer.stop_reason, answer.served, answer.seed, answer.duration_ms) == ("stop", "m-1", 7, 12)
    assert (answer.tool_calls, answer.cost_micro_usd, answer.usage) == ((), None, Usage())


def test_ids_of_earlier_turns_are_not_taken_again() -> None:
    earlier = ModelRequest(messages=({"role": "assistant", "tool_calls": [CALL]},))

    answer = answer_of(completion({"role": "assistant", "tool_calls": [CALL]}), earlier)

    assert answer.tool_calls == (ToolCall(call_id="c1~2", tool="find", arguments='{"a": 1}'),)
    assert answer.message["tool_calls"] == [CALL]


def test_a_message_without_its_role_is_the_assistant_s() -> None:
    assert answer_of(completion({"content": "hi"}), REQUEST).message == {"role": "assistant", "content": "hi"}


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (None, Usage()),
        ("many", Usage()),
        ({"prompt_tokens": -1, "completion_tokens": "7"}, Usage()),
        ({"prompt_tokens": True, "completion_tokens": 2**70}, Usage()),
        ({"prompt_tokens": 9, "completion_tokens": 4}, Usage(input_tokens=9, output_tokens=4)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 5},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(input_tokens=9, output_tokens=4, cached_tokens=5, reasoning_tokens=3),
        ),
    ],
)
def test_counts_of_tokens_are_taken_as_far_as_they_are_counts(raw: Any, usage: Usage) -> None:
    assert answer_of(completion({"content": ""}, usage=raw), REQUEST).usage == usage


@pytest.mark.parametrize(
    ("usage", "prices", "cost"),
    [
        ({"prompt_tokens": 1_000_000, "completion_tokens": 500_000}, Prices(2_000_000, 8_000_000), 6_000_000),
        (
            {"prompt_tokens": 1_000_000, "prompt_tokens_details": {"cached_tokens": 400_000}},
            Prices(2_000_000, 8_000_000, 500_000),
            1_400_000,
        ),
        ({"prompt_tokens": 3, "cost": 0.0025}, Prices(2_000_000, 8_000_000), 2500),
        ({"prompt_tokens": 3, "cost": 0}, None, 0),
        ({"prompt_tokens": 3, "cost": -1}, None, None),
        ({"prompt_tokens": 3}, None, None),
    ],
)
def test_a_reply_costs_what_the_endpoint_says_else_what_the_prices_say(
    usage: Any, prices: Prices | None, cost: int | None
) -> None:
    assert answer_of(completion({"content": ""}, usage=usage), REQUEST, prices=prices).cost_micro_usd == cost


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({}, "no choices"),
        ({"choices": []}, "no choices"),
        ({"choices": ["x"]}, "no choices"),
        ({"error": {"message": "overloaded"}}, "overloaded"),
        ({"choices": [{"text": "old form"}]}, "no message"),
        (completion("hi"), "no message"),
        (completion({"content": "lone \ud800"}), "no form in JSON"),
        (completion({"tool_calls": [{"id": "a"}]}), "no function"),
    ],
)
def test_what_is_no_completion_is_malformed(raw: Any, words: str) -> None:
    with pytest.raises(ModelMalformed, match=words):
        answer_of(raw, REQUEST)


@pytest.mark.parametrize("data", [b"", b"<html>", b'{"a": NaN}', b"\xff", b"[" * 5000, b"[]", b"null"])
def test_a_body_that_is_no_json_object_is_malformed(data: bytes) -> None:
    with pytest.raises(ModelMalformed):
        loaded(data)


def test_a_reply_over_the_limit_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_completion, "REPLY_BYTES_MAX", 100)

    with pytest.raises(ModelMalformed, match="at most 100"):
        answer_of(completion({"content": "x" * 100}), REQUEST)
    with pytest.raises(ModelMalformed, match="more than 100"):
        gathered(*(delta(content="x" * 30) for _ in range(4)))


def delta(*, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"model": "m-1", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def part(index: int | None, call_id: str | None = None, name: str | None = None, arguments: str | None = None) -> Any:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    place = {} if index is None else {"index": index}
    return {**place, **({} if call_id is None else {"id": call_id}), "function": function}


def gathered(*chunks: Any) -> tuple[Chunks, list[str]]:
    heard: list[str] = []
    taken = Chunks(heard.append)
    for chunk in chunks:
        taken.take(chunk)
    return taken, heard


def test_chunks_make_the_message_that_would_have_come_whole() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 4}
    chunks, heard = gathered(
        delta(role="assistant", content=""),
        delta(reasoning_content="h"),
        delta(content="he"),
        delta(content="llo", reasoning_content="m"),
        delta(tool_calls=[part(1, "c2", "open", "")]),
        delta(tool_calls=[part(0, "c1", "fi", '{"a"'), part(1, None, None, "{}")]),
        delta(tool_calls=[part(0, None, "nd", ": 1}")]),
        delta(finish="tool_calls"),
        {"model": "m-1", "choices": [], "usage": usage},
    )

    answer = answer_of(chunks.completion(), REQUEST)

    assert chunks.finished
    assert heard == ["he", "llo"]
    assert (answer.message["content"], answer.message["reasoning_content"]) == ("hello", "hm")
    assert [(one.call_id, one.tool, one.arguments) for one in answer.tool_calls] == [
        ("c1", "find", '{"a": 1}'),
        ("c2", "open", "{}"),
    ]
    assert (answer.stop_reason, answer.served, answer.usage.output_tokens) == ("tool_calls", "m-1", 4)
    assert orjson.loads(orjson.dumps(answer.message)) == answer.message


def test_calls_without_an_index_begin_with_their_id() -> None:
    chunks, _ = gathered(
        delta(tool_calls=[part(None, "a", "find", "{")]),
        delta(tool_calls=[part(None, None, None, "}")]),
        delta(tool_calls=[part(None, "b", "open", "{}")]),
        delta(finish="tool_calls"),
    )

    calls = answer_of(chunks.completion(), REQUEST).tool_calls

    assert [(one.call_id, one.arguments) for one in calls] == [("a", "{}"), ("b", "{}")]


def test_a_stream_that_was_cut_is_not_finished() -> None:
    chunks, _ = gathered(delta(content="he"))

    assert not chunks.finished


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": ["x"]},
        {"choices": [{"delta": "x"}]},
        delta(tool_calls=["x"]),
        delta(tool_calls=[{"index": 0, "function": "x"}]),
    ],
)
def test_what_is_no_chunk_is_malformed(chunk: Any) -> None:
    with pytest.raises(ModelMalformed):
        gathered(chunk)
