"""Anthropic's models, through the official SDK (`pip install 'tracklog[anthropic]'`).

What the log keeps is in the chat-completions form, whoever the model is (`model_blocks`); a reply's thinking and its
signatures are kept with it and sent back as they came. Which failures are tried again: `model_tries`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from tracklog.producers.model_blocks import request_of, tool_of
from tracklog.producers.model_completion import Prices, loaded
from tracklog.producers.model_message import Events, completion_of
from tracklog.producers.model_sdk import SdkModel
from tracklog.producers.model_tries import Again, meaning, parameters, status_meaning
from tracklog.producers.models import ModelAnswer, ModelRequest, OnToken

try:
    import anthropic
except ImportError as error:
    raise ImportError("the anthropic package is missing: pip install 'tracklog[anthropic]'") from error

__all__ = ["MAX_TOKENS", "AnthropicModel", "Prices"]

MAX_TOKENS: Final = 8192
"""Of a reply whose sampling does not say it: the endpoint wants a number."""
_STATUS: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""Of an error that comes in a stream, whose own status is 200."""
_UNNAMED: Final = 500


class AnthropicModel(SdkModel[anthropic.AsyncAnthropic]):
    """A model behind the Messages API; see SdkModel for what it is made of.

    In `sampling`, `max_tokens` is MAX_TOKENS when it does not say it, and what is structured is JSON
    (`{"thinking": '{"type": ...}'}`).
    """

    CLIENT = (anthropic.AsyncAnthropic, "anthropic.AsyncAnthropic")
    OURS = frozenset(("model", "messages", "system", "tools", "stream"))
    SAMPLING: ClassVar[Mapping[str, str]] = {"max_tokens": str(MAX_TOKENS)}

    async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
        """See Model. Streams when `on_token` is given."""
        sampling = parameters(request.sampling or self.sampling, self.OURS)
        body = {"model": self._model, "max_tokens": MAX_TOKENS, **request_of(request.messages), **sampling}
        if request.tools:
            body["tools"] = [tool_of(one) for one in request.tools]
        return await self.answer(body, request, on_token=on_token)

    async def answer(
        self,
        body: Mapping[str, Any],
        request: ModelRequest,
        *,
        on_token: OnToken | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ModelAnswer:
        """The answer to this body of a request, tried as `reply` tries."""

        async def once() -> Mapping[str, Any]:
            return completion_of(await self._once(body, on_token, headers or {}))

        return await self._tried(once, request, self._client.base_url)

    async def _once(
        self, body: Mapping[str, Any], on_token: OnToken | None, headers: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """Raises Again, ModelRefused, ModelMalformed, and what `on_token` raises."""
        arguments = self._arguments(body, headers)
        if on_token is not None:
            return await self._streamed(arguments, on_token)
        try:
            raw = await self._client.messages.with_raw_response.create(**arguments)
        except Exception as error:
            raise _meaning(error) from error
        return loaded(raw.http_response.content)

    async def _streamed(self, arguments: Mapping[str, Any], on_token: OnToken) -> Mapping[str, Any]:
        events = Events(on_token)
        try:
            stream: Any = await self._client.messages.create(**arguments, stream=True)
        except Exception as error:
            raise _meaning(error) from error
        async with stream:
            while (event := await _next_event(stream)) is not None:
                events.take(event)
        if not events.finished:
            raise Again("the stream ended before the reply did")
        return events.message()

    def _arguments(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
        """All of the body as it is; the SDK's own parameters are there to please it."""
        return {
            "model": self._model,
            "max_tokens": MAX_TOKENS,
            "messages": [],
            "extra_body": dict(body),
            "extra_headers": dict(headers),
            "timeout": self._tries.timeout_s,
        }


async def _next_event(stream: Any) -> Mapping[str, Any] | None:
    try:
        event = await anext(stream, None)
        return None if event is None else dict(event.model_dump(exclude_unset=True, warnings=False))
    except Exception as error:
        raise _meaning(error) from error


def _meaning(error: Exception) -> Exception:
    return meaning(error, anthropic, anthropic.AnthropicError, _of_status)


def _of_status(error: anthropic.APIStatusError) -> Exception:
    status = error.status_code if error.status_code >= 400 else _STATUS.get(error.type or "", _UNNAMED)
    return status_meaning(status, error.message, error.response.headers)
