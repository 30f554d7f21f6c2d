"""The official SDK against a real server that speaks the Messages API, well and badly."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.support.anthropic_server import (
    THOUGHT,
    TOO_LONG,
    anthropic_server,
    asks_for,
    error,
    fault,
    message_of,
    says,
    sent,
    streamed,
)
from tests.support.loopback import Reply, in_turn, loopback
from tracklog.infra.clock import ManualClock
from tracklog.producers.model_completion import Prices
from tracklog.producers.models import ModelAnswer, ModelRequest, with_call_ids
from tracklog.schemas.errors import InputError, ModelError, ModelMalformed, ModelRefused, ModelUnavailable

anthropic = pytest.importorskip(
    "anthropic", reason="the anthropic SDK is not installed: pip install 'tracklog[anthropic]'"
)

from tracklog.producers.model_anthropic import MAX_TOKENS, AnthropicModel  # noqa: E402 - only with its SDK

USER = {"role": "user", "content": "What is the weather?"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Looks.", "parameters": SCHEMA}}
REQUEST = ModelRequest(messages=(USER,))
WAIT_S = 60.0


def model(url: str, **more: Any) -> AnthropicModel:
    plain = anthropic.DefaultAsyncHttpxClient(verify=False)  # no certificates are loaded for http
    client = anthropic.AsyncAnthropic(base_url=url, api_key="key", http_client=plain)
    return AnthropicModel(client, "m", **{"backoff_s": 0.0, "timeout_s": WAIT_S, **more})


def whole(blocks: list[dict[str, Any]], **more: Any) -> Reply:
    return Reply(body=json.dumps(message_of(blocks, **more)).encode())


def unheard(_: str) -> None:
    """Somebody who streams and does not look."""


def after(answer: ModelAnswer, *results: dict[str, Any]) -> ModelRequest:
    """The next request, as a session makes it."""
    return ModelRequest(messages=(USER, with_call_ids(answer.message, answer.tool_calls), *results))


def result(call_id: str, content: Any = "sunny") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


async def test_a_request_is_told_in_blocks_and_the_reply_is_kept_in_chat_form() -> None:
    blocks = [*says("Let me look."), *asks_for("toolu_1", "weather", city="Köln", days=2)]
    with anthropic_server(blocks) as endpoint:
        chosen = model(endpoint.url, sampling={"temperature": "0.2", "max_tokens": "99"}, clock=ManualClock())
        system = {"role": "system", "content": "be kind"}
        request = ModelRequest((system, USER), tools=(TOOL,))

        answer = await chosen.reply(request)
        await chosen.reply(replace(request, sampling={"temperature": "0.5"}))

        asked, sampled = endpoint.bodies
        assert (sampled["max_tokens"], sampled["temperature"]) == (MAX_TOKENS, 0.5)
        assert asked == {
            "model": "m",
            "max_tokens": 99,
            "temperature": 0.2,
            "system": says("be kind"),
            "messages": [{"role": "user", "content": says("What is the weather?")}],
            "tools": [{"name": "weather", "description": "Looks.", "input_schema": SCHEMA}],
        }
        assert endpoint.headers[0]["authorization"] == "Bearer key"
    function = {"name": "weather", "arguments": '{"city":"Köln","days":2}'}
    call = {"id": "toolu_1", "type": "function", "function": function}
    assert answer.message == {"role": "assistant", "content": "Let me look.", "tool_calls": [call]}
    assert [(one.call_id, one.tool) for one in answer.tool_calls] == [("toolu_1", "weather")]
    assert (answer.stop_reason, answer.served, answer.duration_ms) == ("tool_use", "scripted-1", 0)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_usage_counts_what_a_cache_gave_and_took(is_streamed: bool) -> None:
    prices = Prices(input=1_000_000, output=5_000_000, cached_input=100_000, cache_write=1_250_000)
    with anthropic_server(says("Fine.")) as endpoint:
        answer = await model(endpoint.url, prices=prices).reply(REQUEST, on_token=unheard if is_streamed else None)

    usage = answer.usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (127, 100, 3)
    assert usage.reasoning_tokens == 2
    assert answer.cost_micro_usd == round(7 * 1 + 100 * 0.1 + 20 * 1.25 + 3 * 5)


ROUND_TRIPS = [
    says("Fine."),
    asks_for("toolu_1", "weather", city="Bonn"),
    [THOUGHT, *says("Let me look."), *asks_for("toolu_1", "weather")],
    [{"type": "redacted_thinking", "data": "ZGFyaw=="}, *asks_for("a", "weather"), *asks_for("b", "weather", city="x")],
    [THOUGHT, *asks_for("a", "weather"), {**THOUGHT, "thinking": "And the other one."}, *asks_for("b", "weather")],
    [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
        *says("Found."),
        *says("!"),
    ],
    [{"type": "heard_of_by_nobody", "what": {"a": [1, None]}}, *says("Fine.")],
]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("blocks", ROUND_TRIPS)
async def test_a_reply_is_sent_back_as_it_was_made(blocks: list[dict[str, Any]], is_streamed: bool) -> None:
    with anthropic_server(blocks, says("Sunny.")) as endpoint:
        chosen = model(endpoint.url)
        answer = await chosen.reply(REQUEST, on_token=unheard if is_streamed else None)
        recorded = json.loads(json.dumps(answer.message))
        results = [result(call.call_id) for call in answer.tool_calls]
        if not results:
            results = [{"role": "user", "content": "And tomorrow?"}]

        await chosen.reply(ModelRequest(messages=(USER, recorded, *results)))

    assert endpoint.bodies[1]["messages"][1] == {"role": "assistant", "content": blocks}
    assert len(endpoint.bodies[1]["messages"]) == 3


async def test_tokens_are_told_as_they_come_and_thoughts_are_not() -> None:
    heard: list[str] = []
    with anthropic_server([THOUGHT, *says("It is fine.")]) as endpoint:
        answer = await model(endpoint.url).reply(REQUEST, on_token=heard.append)

        assert endpoint.bodies[0]["stream"] is True
    assert heard == ["It ", "is ", "fine."]
    assert answer.message["content"] == "It is fine."


async def test_ids_that_the_endpoint_does_not_take_are_changed_alike_in_call_and_result() -> None:
    twice = [*asks_for("a", "weather"), *asks_for("a", "weather")]
    with anthropic_server([THOUGHT, *twice], says("Sunny.")) as endpoint:
        chosen = model(endpoint.url)
        answer = await chosen.reply(REQUEST)
        assert [call.call_id for call in answer.tool_calls] == ["a", "a~2"]

        await chosen.reply(after(answer, result("a"), result("a~2", [{"type": "text", "text": "rain"}])))

    said, told = endpoint.bodies[1]["messages"][1:]
    ids = [block["id"] for block in said["content"][1:]]
    assert ids == [block["tool_use_id"] for block in told["content"]]
    assert len(set(ids)) == 2


async def test_a_call_cut_short_by_max_tokens_reaches_its_tool_as_the_text_it_is() -> None:
    start = {"type": "tool_use", "id": "t", "name": "weather", "input": {}}
    events = (
        {"type": "message_start", "message": message_of([], stop_reason=None)},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"city": "B'},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )
    with loopback(in_turn(sent(*events), whole(says("Fine.")))) as server:
        chosen = model(server.url)
        answer = await chosen.reply(REQUEST, on_token=unheard)
        await chosen.reply(after(answer, result("t", "the arguments are not JSON")))

        assert server.asked[1].json["messages"][1]["content"] == [start]
    assert (answer.tool_calls[0].arguments, answer.stop_reason) == ('{"city": "B', "max_tokens")


async def test_messages_of_other_models_and_frameworks_are_understood() -> None:
    call = {"id": "call.1", "type": "function", "function": {"name": "weather", "arguments": "no json"}}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    messages = (
        {"role": "developer", "content": [{"type": "text", "text": "be kind"}]},
        {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        result("call.1"),
        {"role": "system", "content": "it is late"},
        {"role": "assistant", "content": " \n"},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "and now?"},
    )
    with anthropic_server(says("-"), says("Fine.")) as endpoint:
        await model(endpoint.url).reply(ModelRequest(messages=messages))

    told = endpoint.bodies[0]
    assert told["system"] == says("be kind")
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert told["messages"][0]["content"][1] == {"type": "image", "source": source}
    assert told["messages"][1]["content"][0]["input"] == {}
    assert [one["role"] for one in told["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in told["messages"][2]["content"]] == ["tool_result", "text", "text"]


async def test_blocks_that_were_left_behind_by_an_edited_message_are_not_sent() -> None:
    with anthropic_server([THOUGHT, *says("Fine.")], says("Good.")) as endpoint:
        chosen = model(endpoint.url)
        answer = await chosen.reply(REQUEST)
        edited = {**answer.message, "content": "It rains."}
        await chosen.reply(ModelRequest(messages=(USER, edited, USER)))

    assert endpoint.bodies[1]["messages"][1]["content"] == says("It rains.")


GOOD = whole(says("Fine."))


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("name", ["429", "500", "529", "cut"])
async def test_what_may_pass_is_tried_again_and_gives_one_answer(name: str, is_streamed: bool) -> None:
    with anthropic_server(says("Fine."), faults=[name, name]) as endpoint:
        answer = await model(endpoint.url, retries=2).reply(REQUEST, on_token=unheard if is_streamed else None)

    assert answer.message["content"] == "Fine."
    assert len(endpoint.bodies) == 3


@pytest.mark.parametrize(
    "bad",
    [
        streamed(message_of(says("Fi")), ends=False),
        sent({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        sent({"type": "error", "error": {"type": "heard_of_by_nobody"}}),
    ],
)
async def test_a_stream_that_breaks_off_is_asked_for_again(bad: Reply) -> None:
    with loopback(in_turn(bad, streamed(message_of(says("Fine."))))) as server:
        answer = await model(server.url).reply(REQUEST, on_token=unheard)

        assert answer.message["content"] == "Fine."
        assert len(server.asked) == 2


async def test_a_stream_that_says_that_the_request_is_wrong_is_a_refusal() -> None:
    bad = sent({"type": "error", "error": {"type": "invalid_request_error", "message": "too long"}})
    with loopback(in_turn(bad)) as server:
        with pytest.raises(ModelRefused, match="too long"):
            await model(server.url).reply(REQUEST, on_token=unheard)

        assert len(server.asked) == 1


@pytest.mark.parametrize("bad", [error(429, "rate_limit_error", "x"), Reply(lost=True)])
async def test_retries_are_bounded_and_the_last_reason_is_told(bad: Reply) -> None:
    with loopback(in_turn(bad)) as server:
        with pytest.raises(ModelUnavailable, match="in 3 tries") as gone:
            await model(server.url, retries=2).reply(REQUEST)

        assert len(server.asked) == 3
        assert server.url in str(gone.value)


async def test_all_tries_together_have_one_bound() -> None:
    hold = threading.Event()
    with loopback(in_turn(Reply(hold=hold))) as server:
        try:
            with pytest.raises(ModelUnavailable, match=r"within 0\.2 s"):
                await model(server.url, timeout_s=0.2).reply(REQUEST)
        finally:
            hold.set()


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (400, "invalid_request_error", "context too long"),
        (401, "authentication_error", "api_key"),
        (402, "billing_error", "does not take"),
        (404, "not_found_error", "model's name"),
        (413, "request_too_large", "does not take"),
    ],
)
async def test_a_refusal_is_final_and_says_what_to_do(status: int, kind: str, hint: str) -> None:
    with loopback(in_turn(error(status, kind, "no"))) as server:
        with pytest.raises(ModelRefused, match=str(status)) as refused:
            await model(server.url).reply(REQUEST)

        assert hint in refused.value.hint
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    "bad",
    [
        Reply(body=b"<html>welcome</html>", content_type="text/html"),
        fault("malformed"),
        Reply(body=b"[]"),
        Reply(body=b"{}"),
        Reply(body=b'{"content": ["words"]}'),
        Reply(body=b'{"content": [{"type": "tool_use"}]}'),
        whole(says("lone \ud800")),
        whole(says(TOO_LONG)),
    ],
)
async def test_an_answer_that_is_none_is_malformed(bad: Reply) -> None:
    with loopback(in_turn(bad)) as server:
        with pytest.raises(ModelMalformed):
            await model(server.url).reply(REQUEST)

        assert len(server.asked) == 1


START = {"type": "message_start", "message": message_of([], stop_reason=None)}
DELTA = {"type": "text_delta", "text": "x"}


@pytest.mark.parametrize(
    "bad",
    [
        Reply(body=b"event: message_start\ndata: {not json\n\n", content_type="text/event-stream"),
        sent({"type": "message_start"}),
        sent(START, {"type": "content_block_delta", "index": 0, "delta": DELTA}),
        sent(START, {"type": "content_block_start", "content_block": {"type": "text"}}),
        streamed(message_of(says(TOO_LONG))),
    ],
)
async def test_a_stream_of_something_else_is_malformed(bad: Reply) -> None:
    with loopback(in_turn(bad)) as server, pytest.raises(ModelMalformed):
        await model(server.url, retries=1).reply(REQUEST, on_token=unheard)


async def test_cancelling_passes_through() -> None:
    hold = threading.Event()
    with loopback(in_turn(Reply(hold=hold))) as server:
        running = asyncio.create_task(model(server.url).reply(REQUEST))
        await asyncio.to_thread(server.wait_for_request)
        running.cancel()

        with pytest.raises(asyncio.CancelledError):
            await running
        hold.set()


@pytest.mark.parametrize(
    "more",
    [*({"sampling": {name: "1"}} for name in ("model", "messages", "system", "tools", "stream")), {"retries": -1}],
)
def test_settings_that_make_no_sense_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        model("http://127.0.0.1:9", **more)


def test_a_client_that_is_not_async_is_refused_with_the_way_out() -> None:
    with pytest.raises(InputError, match="AsyncAnthropic"):
        AnthropicModel(anthropic.Anthropic(base_url="http://127.0.0.1:9", api_key="key"), "m")


def test_a_model_of_another_name_is_at_the_same_endpoint() -> None:
    chosen = model("http://127.0.0.1:9")

    assert chosen.named("other").name == "other"
    assert (chosen.name, chosen.sampling) == ("m", {"max_tokens": str(MAX_TOKENS)})


async def test_every_error_of_the_sdk_is_one_of_ours() -> None:
    """A leaf that a newer SDK brings comes up here, and is given its meaning in `_meaning`."""
    from tracklog.producers import model_anthropic, model_tries

    with loopback(in_turn(Reply(400))) as server:
        client = anthropic.AsyncAnthropic(base_url=server.url, api_key="key", max_retries=0)
        with pytest.raises(anthropic.APIStatusError) as caught:
            await client.models.list()
    response = caught.value.response
    raised = [
        anthropic.APIConnectionError(request=response.request),
        anthropic.APITimeoutError(request=response.request),
        anthropic.APIResponseValidationError(response=response, body=None),
        anthropic.AnthropicError("no key"),
        ConnectionResetError("transport"),
        *(
            kind("x", response=response, body=None)
            for kind in anthropic.APIStatusError.__subclasses__()
            if kind.__init__ is anthropic.APIStatusError.__init__
        ),
    ]

    meanings = [model_anthropic._meaning(error) for error in raised]

    assert all(isinstance(one, ModelError | model_tries.Again) for one in meanings)
