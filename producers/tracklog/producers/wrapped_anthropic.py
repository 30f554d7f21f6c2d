"""The Messages API of a wrapped AsyncAnthropic (see `wrapped`).

What is recorded is in the chat form (`model_blocks`); what is sent live is the program's own request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from tracklog.producers.asked import Asked
from tracklog.producers.model_anthropic import AnthropicModel
from tracklog.producers.model_blocks import chat_messages, chat_tools, reply_blocks, safe_messages
from tracklog.producers.model_completion import Prices
from tracklog.producers.models import ModelAnswer, ModelRequest, OnToken
from tracklog.producers.wrapped import through, unfit
from tracklog.schemas import events as ev
from tracklog.schemas.errors import TracklogError

try:
    import anthropic
except ImportError as error:
    raise ImportError("the anthropic package is missing: pip install 'tracklog[anthropic]'") from error

if TYPE_CHECKING:
    from tracklog.producers.models import Reply
    from tracklog.producers.session import Session

__all__ = ["wrapped_anthropic"]

_BESIDE: Final = frozenset(("model", "messages", "system", "tools", "stream", "metadata", "cache_control"))
"""In a body, what is no sampling."""
_BETA: Final = "anthropic-beta"


def wrapped_anthropic(
    session: Session, client: Any, *, on_token: OnToken | None = None, prices: Prices | None = None, **tries: Any
) -> anthropic.AsyncAnthropic:
    """See `wrapped`."""
    if not isinstance(client, anthropic.AsyncAnthropic):
        raise unfit(client)
    model = AnthropicModel(client, "", prices=prices, **tries)
    speaks = _Messages(session, model, on_token)
    wrapped: anthropic.AsyncAnthropic = through(client, speaks, middleware=[_as_it_is])
    return wrapped


async def _as_it_is(request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    """An error of the session is raised as it is: the SDK takes whatever its transport raises for a lost connection."""
    try:
        return await call_next(request)
    except anthropic.APIConnectionError as error:
        if isinstance(error.__cause__, TracklogError):
            raise error.__cause__ from None
        raise


class _Messages:
    path: Final = "/v1/messages"

    def __init__(self, session: Session, model: AnthropicModel, on_token: OnToken | None) -> None:
        self._session = session
        self._model = model
        self._on_token = on_token

    async def answer(self, body: dict[str, Any], headers: Mapping[str, str]) -> Mapping[str, Any]:
        messages = list(chat_messages(body.get("system"), body["messages"]))
        tools = chat_tools(body.get("tools") or ())
        betas = {_BETA: headers[_BETA]} if _BETA in headers else {}

        async def ask(recorded: tuple[Mapping[str, Any], ...]) -> ModelAnswer:
            sent = {name: value for name, value in body.items() if name != "stream"}
            sent["messages"] = safe_messages(body["messages"])
            model = self._model.named(str(body.get("model")))
            request = ModelRequest(recorded, tuple(tools))
            return await model.answer(sent, request, on_token=self._on_token, headers=betas)

        sampling = {name: value for name, value in body.items() if name not in _BESIDE}
        asked = Asked.of(body.get("model"), tools, sampling)
        event, reply = await self._session.exchange(messages, asked, ask)
        return _message(self._session, body, reply, event)

    def events(self, answer: Mapping[str, Any]) -> Iterator[bytes]:
        """The message block by block, each in one piece."""
        begun = {**answer, "content": [], "stop_reason": None}
        yield _event("message_start", message=begun)
        for index, block in enumerate(answer["content"]):
            start, deltas = _parts(block)
            yield _event("content_block_start", index=index, content_block=start)
            for delta in deltas:
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        ended = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
        yield _event("message_delta", delta=ended, usage=answer["usage"])
        yield _event("message_stop")


def _message(session: Session, body: Mapping[str, Any], reply: Reply, event: ev.ModelReplied) -> dict[str, Any]:
    """The reply as the endpoint sends it: the same each time it is given."""
    usage = event.usage
    return {
        "id": f"{session.trajectory_id}:{session.turn}",
        "type": "message",
        "role": "assistant",
        "model": event.model_served or body.get("model", ""),
        "content": reply_blocks(reply.message),
        "stop_reason": event.stop_reason or ("tool_use" if reply.tool_calls else "end_turn"),
        "stop_sequence": None,
        "usage": {
            "input_tokens": max(0, usage.input_tokens - usage.cached_tokens),
            "cache_read_input_tokens": usage.cached_tokens,
            "cache_creation_input_tokens": 0,
            "output_tokens": usage.output_tokens,
        },
    }


def _parts(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(what a block begins with, the deltas that make it whole)."""
    kind = block.get("type")
    if kind == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": block.get("text") or ""}]
    if kind == "tool_use":
        text = orjson.dumps(block.get("input")).decode()
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]
    if kind == "thinking":
        thought = {"type": "thinking_delta", "thinking": block.get("thinking") or ""}
        signed = {"type": "signature_delta", "signature": block.get("signature") or ""}
        return {**block, "thinking": "", "signature": ""}, [thought, signed]
    return dict(block), []


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + b"data: " + orjson.dumps({"type": kind, **fields}) + b"\n\n"
