"""The official SDK against a real server that speaks chat completions, well and badly."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import closing
from typing import Any

import pytest

from tests.support.loopback import Asked, Reply, in_turn, loopback
from tracklog.infra.clock import ManualClock
from tracklog.producers.models import ModelRequest
from tracklog.schemas.errors import InputError, ModelError, ModelMalformed, ModelRefused, ModelUnavailable

openai = pytest.importorskip("openai", reason="the openai SDK is not installed: pip install 'tracklog[openai]'")

from tracklog.producers.model_openai import OpenAIModel  # noqa: E402 - only with its SDK

USER = {"role": "user", "content": "What is the weather?"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
REQUEST = ModelRequest(messages=(USER,))
WAIT_S = 60.0


def completion(message: Any = None, finish: str = "stop") -> bytes:
    said = {"role": "assistant", "content": "Fine."} if message is None else message
    choice = {"index": 0, "message": said, "finish_reason": finish}
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    return json.dumps(
        {"id": "x", "object": "chat.completion", "created": 1, "model": "m-1", "choices": [choice], "usage": usage}
    ).encode()


def stream(*deltas: dict[str, Any], finish: str | None = "stop", done: bool = True) -> Reply:
    choices: list[dict[str, Any]] = [{"index": 0, "delta": one, "finish_reason": None} for one in deltas]
    if finish is not None:
        choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    chunks: list[dict[str, Any]] = [{"id": "x", "created": 1, "model": "m-1", "choices": [one]} for one in choices]
    chunks.append({"id": "x", "created": 1, "model": "m-1", "choices": [], "usage": {"prompt_tokens": 9}})
    body = b"".join(b"data: %s\n\n" % json.dumps({"object": "chat.completion.chunk", **one}).encode() for one in chunks)
    return Reply(body=body + (b"data: [DONE]\n\n" if done else b""), content_type="text/event-stream")


def model(url: str, **more: Any) -> OpenAIModel:
    plain = openai.DefaultAsyncHttpxClient(verify=False)  # no certificates are loaded for http
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="key", http_client=plain)
    return OpenAIModel(client, "m", **{"backoff_s": 0.0, "timeout_s": WAIT_S, **more})


def unheard(_: str) -> None:
    """Somebody who streams and does not look."""


GOOD = Reply(body=completion())
BUSY = Reply(429, b'{"error": {"message": "slow down"}}')


async def test_a_request_is_sent_whole_and_the_answer_is_verbatim() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [CALL], "unheard_of": {"a": 1}}
    with loopback(in_turn(Reply(body=completion(message, "tool_calls")))) as server:
        chosen = model(server.url, sampling={"temperature": "0.2"}, clock=ManualClock())
        sampled = {"temperature": "0.5", "top_k": "5", "seed": "7", "mode": "deep"}

        answer = await chosen.reply(ModelRequest(messages=(USER,), tools=(TOOL,), sampling=sampled))
        await chosen.reply(ModelRequest(messages=(USER,)))

        asked, bare = server.asked
        assert bare.json == {"model": "m", "messages": [USER], "temperature": 0.2}
        assert asked.path == "/v1/chat/completions"
        assert asked.headers["authorization"] == "Bearer key"
        sampling = {"temperature": 0.5, "top_k": 5, "seed": 7, "mode": "deep"}
        assert asked.json == {"model": "m", "messages": [USER], "tools": [TOOL], **sampling}
    assert answer.message == message
    assert [one.call_id for one in answer.tool_calls] == ["c1"]
    assert (answer.stop_reason, answer.served, answer.seed, answer.duration_ms) == ("tool_calls", "m-1", 7, 0)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (9, 4)
    assert chosen.name == "m"


async def test_tokens_are_told_as_they_come_and_the_answer_is_the_same() -> None:
    heard: list[str] = []
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{"}}
    rest = {"index": 0, "function": {"arguments": "}"}}
    parts = (
        {"role": "assistant", "content": "Fi"},
        {"content": "ne."},
        {"tool_calls": [first]},
        {"tool_calls": [rest]},
    )
    with loopback(in_turn(stream(*parts, finish="tool_calls"))) as server:
        answer = await model(server.url).reply(REQUEST, on_token=heard.append)

        assert server.asked[0].json["stream"] is True
    assert heard == ["Fi", "ne."]
    assert answer.message == {"role": "assistant", "content": "Fine.", "tool_calls": [CALL]}
    assert [one.arguments for one in answer.tool_calls] == ["{}"]
    assert answer.usage.input_tokens == 9


@pytest.mark.parametrize(
    "bad",
    [
        BUSY,
        Reply(408),
        Reply(409),
        Reply(500, b"oops", "text/plain"),
        Reply(503),
        Reply(lost=True),
        Reply(body=completion(), length=10_000),
        Reply(429, headers={"Retry-After-Ms": "1"}),
        Reply(429, headers={"Retry-After": "0.001"}),
        Reply(503, headers={"Retry-After": "Mon, 30 Nov 2026 00:00:00 GMT"}),
    ],
)
async def test_what_may_pass_is_tried_again_and_gives_one_answer(bad: Reply) -> None:
    with loopback(in_turn(bad, bad, GOOD)) as server:
        answer = await model(server.url, retries=2).reply(REQUEST)

        assert answer.message["content"] == "Fine."
        assert len(server.asked) == 3
        assert len({asked.body for asked in server.asked}) == 1


CUT = stream({"role": "assistant", "content": "Fi"}, finish=None, done=False)


@pytest.mark.parametrize(
    "bad",
    [
        CUT,
        Reply(body=CUT.body, content_type=CUT.content_type, length=len(CUT.body) + 100),
        stream({"content": "Fi"}, finish=None),
        Reply(body=b'data: {"error": {"message": "overloaded"}}\n\n', content_type="text/event-stream"),
        BUSY,
    ],
)
async def test_a_stream_that_is_cut_is_asked_for_again(bad: Reply) -> None:
    heard: list[str] = []
    whole = stream({"role": "assistant", "content": "Fine."})
    with loopback(in_turn(bad, whole)) as server:
        answer = await model(server.url).reply(REQUEST, on_token=heard.append)

        assert answer.message["content"] == "Fine."
        assert heard[-1] == "Fine."
        assert len(server.asked) == 2


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("bad", [BUSY, Reply(500), Reply(lost=True)])
async def test_retries_are_bounded_and_the_last_reason_is_told(bad: Reply, streamed: bool) -> None:
    with loopback(in_turn(bad)) as server:
        with pytest.raises(ModelUnavailable, match="in 3 tries") as gone:
            await model(server.url, retries=2).reply(REQUEST, on_token=unheard if streamed else None)

        assert len(server.asked) == 3
        assert server.url in str(gone.value)
        assert gone.value.hint != ""


async def test_an_endpoint_that_is_not_there_is_unavailable() -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    with pytest.raises(ModelUnavailable, match="in 2 tries"):
        await model(f"http://127.0.0.1:{port}", retries=1).reply(REQUEST)


@pytest.mark.parametrize("streamed", [True, False])
async def test_all_tries_together_have_one_bound(streamed: bool) -> None:
    hold = threading.Event()
    with loopback(in_turn(Reply(hold=hold))) as server:
        try:
            with pytest.raises(ModelUnavailable, match=r"within 0\.2 s"):
                await model(server.url, timeout_s=0.2).reply(REQUEST, on_token=unheard if streamed else None)
        finally:
            hold.set()


async def test_an_endpoint_that_asks_for_too_much_patience_is_not_waited_for() -> None:
    with loopback(in_turn(Reply(429, headers={"Retry-After": "86400"}))) as server:
        with pytest.raises(ModelUnavailable, match="86400 s of patience"):
            await model(server.url).reply(REQUEST)

        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "body", "hint"),
    [
        (400, b'{"error": {"message": "context length exceeded"}}', "context too long"),
        (401, b'{"error": {"message": "no such key"}}', "api_key"),
        (403, b"{}", "api_key"),
        (404, b"not found", "base_url"),
        (422, b"{}", "does not take the request"),
        (429, b'{"error": {"message": "pay first", "code": "insufficient_quota"}}', "quota"),
    ],
)
async def test_a_refusal_is_final_and_says_what_to_do(status: int, body: bytes, hint: str) -> None:
    with loopback(in_turn(Reply(status, body))) as server:
        with pytest.raises(ModelRefused, match=str(status)) as refused:
            await model(server.url).reply(REQUEST)

        assert hint in refused.value.hint
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    "bad",
    [
        Reply(body=b"<html>welcome</html>", content_type="text/html"),
        Reply(body=b"<html>welcome</html>"),
        Reply(body=b'{"choices": [{"message": {"content": "cut'),
        Reply(body=b"[]"),
        Reply(body=b"null"),
        Reply(body=b'{"choices": []}'),
        Reply(body=completion("words")),
        Reply(body=completion({"tool_calls": [{"id": "a"}]})),
        Reply(body=completion({"content": "lone \ud800"})),
    ],
)
async def test_an_answer_that_is_none_is_malformed_with_a_hint(bad: Reply) -> None:
    with loopback(in_turn(bad)) as server:
        with pytest.raises(ModelMalformed) as malformed:
            await model(server.url).reply(REQUEST)

        assert len(server.asked) == 1
        assert malformed.value.exit_code == 3


@pytest.mark.parametrize(
    "data", [b"{not json", b"[1]", b'"text"', b'{"choices": ["x"]}', b'{"choices": [{"delta": 3}]}']
)
async def test_a_stream_of_something_else_is_malformed(data: bytes) -> None:
    bad = Reply(body=b"data: %s\n\n" % data, content_type="text/event-stream")
    with loopback(in_turn(bad)) as server, pytest.raises(ModelMalformed):
        await model(server.url, retries=1).reply(REQUEST, on_token=unheard)


async def test_calls_without_ids_and_with_one_id_twice_are_told_apart() -> None:
    nameless = {"type": "function", "function": {"name": "weather", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [CALL, CALL, nameless]}
    earlier = ModelRequest(messages=(USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}))
    with loopback(in_turn(Reply(body=completion(message)))) as server:
        answer = await model(server.url).reply(earlier)

    assert [one.call_id for one in answer.tool_calls] == ["c1~2", "c1~3", "call-3"]


async def test_a_callback_that_raises_ends_the_call_with_its_error() -> None:
    def fail(_: str) -> None:
        raise ZeroDivisionError

    with loopback(in_turn(stream({"content": "Fine."}))) as server:
        with pytest.raises(ZeroDivisionError):
            await model(server.url).reply(REQUEST, on_token=fail)

        assert len(server.asked) == 1


async def test_cancelling_passes_through() -> None:
    hold = threading.Event()
    with loopback(in_turn(Reply(hold=hold))) as server:
        running = asyncio.create_task(model(server.url).reply(REQUEST))
        await asyncio.to_thread(server.wait_for_request)
        running.cancel()

        with pytest.raises(asyncio.CancelledError):
            await running
        hold.set()


async def test_many_replies_at_once_do_not_mix() -> None:
    def echo(asked: Asked) -> Reply:
        return Reply(body=completion({"role": "assistant", "content": asked.json["messages"][0]["content"]}))

    with loopback(echo) as server:
        chosen = model(server.url)
        requests = [ModelRequest(messages=({"role": "user", "content": str(n)},)) for n in range(20)]
        answers = await asyncio.gather(*(chosen.reply(one) for one in requests))

    assert [one.message["content"] for one in answers] == [str(n) for n in range(20)]


@pytest.mark.parametrize(
    "more",
    [
        *({"sampling": {name: "1"}} for name in ("model", "messages", "tools", "stream", "n")),
        {"retries": -1},
        {"timeout_s": 0.0},
        {"backoff_s": -1.0},
    ],
)
def test_settings_that_make_no_sense_are_refused(more: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        model("http://127.0.0.1:9", **more)


def test_a_client_that_is_not_async_is_refused_with_the_way_out() -> None:
    client = openai.OpenAI(base_url="http://127.0.0.1:9", api_key="key")

    with pytest.raises(InputError, match="AsyncOpenAI"):
        OpenAIModel(client, "m")


async def test_every_error_of_the_sdk_is_one_of_ours() -> None:
    """A leaf that a newer SDK brings comes up here, and is given its meaning in `_meaning`."""
    from tracklog.producers import model_openai, model_tries

    with loopback(in_turn(Reply(400))) as server:
        client = openai.AsyncOpenAI(base_url=server.url, api_key="key", max_retries=0)
        with pytest.raises(openai.APIStatusError) as caught:
            await client.models.list()
    response = caught.value.response
    raised = [
        openai.APIConnectionError(request=response.request),
        openai.APITimeoutError(request=response.request),
        openai.APIResponseValidationError(response=response, body=None),
        openai.APIError("in the stream", response.request, body=None),
        openai.OpenAIError("no key"),
        ConnectionResetError("transport"),
        *(
            kind("x", response=response, body=None)
            for kind in openai.APIStatusError.__subclasses__()
            if kind.__init__ is openai.APIStatusError.__init__
        ),
    ]

    meanings = [model_openai._meaning(error) for error in raised]

    assert all(isinstance(one, ModelError | model_tries.Again) for one in meanings)
