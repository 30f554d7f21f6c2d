"""An AsyncOpenAI client whose chat completions go through a session: recorded once, answered from the record after.

It is the SDK's own client over a transport that is the session, so whatever is built on the SDK works with it, and
gets the SDK's own objects. POST .../chat/completions is answered; every other request raises SessionMisused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from tracklog.producers.model_completion import Prices
from tracklog.producers.model_openai import OpenAIModel
from tracklog.producers.models import ModelAnswer, ModelRequest, OnToken
from tracklog.schemas import events as ev
from tracklog.schemas.errors import InputError, SessionMisused

try:
    import httpx2
    import openai
except ImportError as error:
    raise ImportError("the openai package is missing: pip install 'tracklog[openai]'") from error

if TYPE_CHECKING:
    from tracklog.producers.models import Reply
    from tracklog.producers.session import Session

__all__ = ["wrapped_openai"]

PATH: Final = "/chat/completions"


def wrapped_openai(
    session: Session,
    client: Any,
    *,
    on_token: OnToken | None = None,
    prices: Prices | None = None,
    **tries: Any,
) -> openai.AsyncOpenAI:
    """The client for use inside of the session. The one given asks live; it stays as it is.

    `on_token` is given the text of live replies as it comes. A program that streams is given the reply when it is
    whole. `prices` and `tries` (retries, timeout_s, backoff_s) are those of OpenAIModel; the client's own retries
    are not used. Raises InputError for a client of another kind.
    """
    if not isinstance(client, openai.AsyncOpenAI) or isinstance(client, openai.AsyncAzureOpenAI):
        raise InputError(
            f"a {type(client).__name__} cannot be wrapped", hint="give an openai.AsyncOpenAI: sessions are async"
        )
    model = OpenAIModel(client, "", prices=prices, **tries)
    transport = _Through(session, model, on_token)
    http_client = httpx2.AsyncClient(transport=transport, base_url=client.base_url)
    return client.with_options(http_client=http_client, max_retries=0)


class _Through(httpx2.AsyncBaseTransport):
    """The session, as what a client sends its requests by."""

    def __init__(self, session: Session, model: OpenAIModel, on_token: OnToken | None) -> None:
        self._session = session
        self._model = model
        self._on_token = on_token

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises as Session.exchange does."""
        if request.method != "POST" or not request.url.path.endswith(PATH):
            raise SessionMisused(
                f"{request.method} {request.url.path} of a wrapped client would not be recorded",
                hint=f"inside of a session only POST {PATH} is; read other things with session.step",
            )
        body = orjson.loads(await request.aread())
        event, reply = await self._ask(body)
        completion = _completion(self._session, body, reply, event)
        if body.get("stream"):
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=_stream(completion))
        return httpx2.Response(200, json=completion)

    async def _ask(self, body: dict[str, Any]) -> tuple[ev.ModelReplied, Reply]:
        messages = body.pop("messages", None)
        if not isinstance(messages, list) or body.get("n") not in (None, 1):
            raise SessionMisused("a session takes one list of messages, and one reply to it", hint="leave n out")
        tools = body.get("tools") or ()
        plain = {key: value for key, value in body.items() if key not in ("stream", "stream_options", "n")}

        async def ask(recorded: tuple[Mapping[str, Any], ...]) -> ModelAnswer:
            request = ModelRequest(recorded, tuple(tools))
            return await self._model.named(str(body.get("model"))).answer(
                {**plain, "messages": list(recorded)}, request, on_token=self._on_token
            )

        return await self._session.exchange(messages, tools, ask)


def _completion(session: Session, body: Mapping[str, Any], reply: Reply, event: ev.ModelReplied) -> dict[str, Any]:
    """The reply as an endpoint sends it: the same each time it is given."""
    usage = event.usage
    counted = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
    finish = event.stop_reason or ("tool_calls" if reply.tool_calls else "stop")
    choice = {"index": 0, "message": dict(reply.message), "finish_reason": finish, "logprobs": None}
    return {
        "id": f"{session.trajectory_id}:{session.turn}",
        "object": "chat.completion",
        "created": 0,
        "model": event.model_served or body.get("model", ""),
        "choices": [choice],
        "usage": counted,
    }


async def _stream(completion: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """The completion in three chunks: what was said, that it ended, what it cost."""
    shared = {**completion, "object": "chat.completion.chunk", "usage": None}
    (choice,) = completion["choices"]
    message = choice["message"]
    calls = [{**call, "index": position} for position, call in enumerate(message.get("tool_calls") or ())]
    delta = {**message, "tool_calls": calls} if calls else message
    said = {"index": 0, "delta": delta, "finish_reason": None}
    ended = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    chunks = ({**shared, "choices": [said]}, {**shared, "choices": [ended]}, {**completion, **shared, "choices": []})
    for chunk in (*chunks[:2], {**chunks[2], "usage": completion["usage"]}):
        yield b"data: " + orjson.dumps(chunk) + b"\n\n"
    yield b"data: [DONE]\n\n"
