"""Chat completions of a wrapped AsyncOpenAI (see `wrapped`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from tracklog.producers.asked import Asked
from tracklog.producers.model_completion import Prices
from tracklog.producers.model_openai import OpenAIModel
from tracklog.producers.models import ModelAnswer, ModelRequest, OnToken
from tracklog.producers.wrapped import through, unfit
from tracklog.schemas import events as ev
from tracklog.schemas.errors import SessionMisused

try:
    import openai
except ImportError as error:
    raise ImportError("the openai package is missing: pip install 'tracklog[openai]'") from error

if TYPE_CHECKING:
    from tracklog.producers.models import Reply
    from tracklog.producers.session import Session

__all__ = ["wrapped_openai"]

_BESIDE: Final = frozenset(("model", "messages", "tools", "stream", "stream_options", "n"))
_ABOUT: Final = frozenset(("user", "metadata", "store", "prompt_cache_key", "safety_identifier"))
"""In a body, what no reply depends on: beside the rest, which is sampling."""


def wrapped_openai(
    session: Session, client: Any, *, on_token: OnToken | None = None, prices: Prices | None = None, **tries: Any
) -> openai.AsyncOpenAI:
    """See `wrapped`."""
    if not isinstance(client, openai.AsyncOpenAI) or isinstance(client, openai.AsyncAzureOpenAI):
        raise unfit(client)
    model = OpenAIModel(client, "", prices=prices, **tries)
    wrapped: openai.AsyncOpenAI = through(client, _Completions(session, model, on_token))
    return wrapped


class _Completions:
    path: Final = "/chat/completions"

    def __init__(self, session: Session, model: OpenAIModel, on_token: OnToken | None) -> None:
        self._session = session
        self._model = model
        self._on_token = on_token

    async def answer(self, body: dict[str, Any], headers: Mapping[str, str]) -> Mapping[str, Any]:
        if body.get("n") not in (None, 1):
            raise SessionMisused("a session takes one reply to a list of messages", hint="leave n out")
        tools = body.get("tools") or ()
        plain = {key: value for key, value in body.items() if key not in ("stream", "stream_options", "n")}

        async def ask(recorded: tuple[Mapping[str, Any], ...]) -> ModelAnswer:
            request = ModelRequest(recorded, tuple(tools))
            return await self._model.named(str(body.get("model"))).answer(
                {**plain, "messages": list(recorded)}, request, on_token=self._on_token
            )

        sampling = {name: value for name, value in body.items() if name not in _BESIDE | _ABOUT}
        asked = Asked.of(body.get("model"), tools, sampling)
        event, reply = await self._session.exchange(body["messages"], asked, ask)
        return _completion(self._session, body, reply, event)

    def events(self, answer: Mapping[str, Any]) -> Iterator[bytes]:
        """The completion in three chunks: what was said, that it ended, what it cost."""
        shared = {**answer, "object": "chat.completion.chunk", "usage": None}
        (choice,) = answer["choices"]
        message = choice["message"]
        calls = [{**call, "index": position} for position, call in enumerate(message.get("tool_calls") or ())]
        delta = {**message, "tool_calls": calls} if calls else message
        said = {"index": 0, "delta": delta, "finish_reason": None}
        ended = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
        cost = {**shared, "choices": [], "usage": answer["usage"]}
        for chunk in ({**shared, "choices": [said]}, {**shared, "choices": [ended]}, cost):
            yield b"data: " + orjson.dumps(chunk) + b"\n\n"
        yield b"data: [DONE]\n\n"


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
