"""Any OpenAI-compatible endpoint, through the official SDK (`pip install 'tracklog[openai]'`).

Which failures are tried again, and what the others mean: `model_tries`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tracklog.producers.model_blocks import BLOCKS
from tracklog.producers.model_completion import Chunks, Prices, loaded
from tracklog.producers.model_sdk import SdkModel
from tracklog.producers.model_tries import Again, meaning, parameters, status_meaning
from tracklog.producers.models import ModelAnswer, ModelRequest, OnToken

try:
    import openai
except ImportError as error:
    raise ImportError("the openai package is missing: pip install 'tracklog[openai]'") from error

__all__ = ["OpenAIModel", "Prices"]

_SPENT: Final = "insufficient_quota"


class OpenAIModel(SdkModel[openai.AsyncOpenAI]):
    """A model behind a chat-completions endpoint; see SdkModel for what it is made of."""

    CLIENT = (openai.AsyncOpenAI, "openai.AsyncOpenAI")
    OURS = frozenset(("model", "messages", "tools", "stream", "stream_options", "n"))

    async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
        """See Model. Streams when `on_token` is given."""
        sampling = parameters(request.sampling or self.sampling, self.OURS)
        messages = [{name: value for name, value in one.items() if name != BLOCKS} for one in request.messages]
        body = {"model": self._model, "messages": messages, **sampling}
        if request.tools:
            body["tools"] = list(request.tools)
        return await self.answer(body, request, on_token=on_token)

    async def answer(
        self, body: Mapping[str, Any], request: ModelRequest, *, on_token: OnToken | None = None
    ) -> ModelAnswer:
        """The answer to this body of a request, tried as `reply` tries."""
        seed = body.get("seed")
        kept = seed if isinstance(seed, int) and -(2**63) <= seed < 2**63 else None
        return await self._tried(lambda: self._once(body, on_token), request, self._client.base_url, seed=kept)

    async def _once(self, body: Mapping[str, Any], on_token: OnToken | None) -> Mapping[str, Any]:
        """Raises Again, ModelRefused, ModelMalformed, and what `on_token` raises."""
        if on_token is not None:
            return await self._streamed(body, on_token)
        try:
            raw = await self._client.chat.completions.with_raw_response.create(**self._arguments(body))
        except Exception as error:
            raise _meaning(error) from error
        return loaded(raw.http_response.content)

    async def _streamed(self, body: Mapping[str, Any], on_token: OnToken) -> Mapping[str, Any]:
        chunks = Chunks(on_token)
        arguments = self._arguments({**body, "stream_options": {"include_usage": True}})
        try:
            stream: Any = await self._client.chat.completions.create(**arguments, stream=True)
        except Exception as error:
            raise _meaning(error) from error
        async with stream:
            while (chunk := await _next_chunk(stream)) is not None:
                chunks.take(chunk)
        if not chunks.finished:
            raise Again("the stream ended before the reply did")
        return chunks.completion()

    def _arguments(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """All of the body as it is: the SDK's own parameters know the sampling of one vendor only."""
        return {"model": self._model, "messages": [], "extra_body": dict(body), "timeout": self._tries.timeout_s}


async def _next_chunk(stream: Any) -> Mapping[str, Any] | None:
    try:
        chunk = await anext(stream, None)
        return None if chunk is None else dict(chunk.model_dump(exclude_unset=True, warnings=False))
    except Exception as error:
        raise _meaning(error) from error


def _meaning(error: Exception) -> Exception:
    return meaning(error, openai, openai.OpenAIError, _of_status)


def _of_status(error: openai.APIStatusError) -> Exception:
    spent = error.code == _SPENT
    return status_meaning(error.status_code, error.message, error.response.headers, spent=spent)
