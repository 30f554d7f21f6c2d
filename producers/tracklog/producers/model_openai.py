"""Any OpenAI-compatible endpoint, through the official SDK (`pip install 'tracklog[openai]'`).

Which failures are tried again, and what the others mean: `model_tries`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from tracklog.infra.clock import Clock, SystemClock
from tracklog.producers.model_blocks import BLOCKS
from tracklog.producers.model_completion import Chunks, Prices, answer_of, loaded
from tracklog.producers.model_tries import (
    BACKOFF_S,
    RETRIES,
    TIMEOUT_S,
    Again,
    Tries,
    meaning,
    parameters,
    status_meaning,
)
from tracklog.producers.models import ModelAnswer, ModelRequest, OnToken
from tracklog.schemas.errors import InputError

try:
    import openai
except ImportError as error:
    raise ImportError("the openai package is missing: pip install 'tracklog[openai]'") from error

__all__ = ["OpenAIModel", "Prices"]

_SPENT: Final = "insufficient_quota"
_OURS: Final = frozenset(("model", "messages", "tools", "stream", "stream_options", "n"))
_CLOCK: Final = SystemClock()


class OpenAIModel:
    """A model behind a chat-completions endpoint. `client` is an `openai.AsyncOpenAI`; its own retries are not used.

    `sampling` holds texts, as they are recorded: JSON values (`{"temperature": "0.2"}`) or plain words. `prices`
    give the cost of a reply when the endpoint does not. Raises InputError.
    """

    def __init__(
        self,
        client: openai.AsyncOpenAI,
        model: str,
        *,
        sampling: Mapping[str, str] | None = None,
        prices: Prices | None = None,
        retries: int = RETRIES,
        timeout_s: float = TIMEOUT_S,
        backoff_s: float = BACKOFF_S,
        clock: Clock = _CLOCK,
    ) -> None:
        if not isinstance(client, openai.AsyncOpenAI):
            raise InputError(f"{type(client).__name__} is no client of use here", hint="give an openai.AsyncOpenAI")
        self._tries = Tries(retries, timeout_s, backoff_s)
        self._client = client.with_options(max_retries=0)
        self._model = model
        self.sampling: Mapping[str, str] = dict(sampling or {})
        parameters(self.sampling, _OURS)
        self._prices = prices
        self._clock = clock

    @property
    def name(self) -> str:
        return self._model

    def named(self, name: str) -> OpenAIModel:
        """The model of that name at the same endpoint."""
        other = copy.copy(self)
        other._model = name
        return other

    async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
        """See Model. Streams when `on_token` is given."""
        sampling = parameters(request.sampling or self.sampling, _OURS)
        messages = [{name: value for name, value in one.items() if name != BLOCKS} for one in request.messages]
        body = {"model": self._model, "messages": messages, **sampling}
        if request.tools:
            body["tools"] = list(request.tools)
        return await self.answer(body, request, on_token=on_token)

    async def answer(
        self, body: Mapping[str, Any], request: ModelRequest, *, on_token: OnToken | None = None
    ) -> ModelAnswer:
        """The answer to this body of a request, tried as `reply` tries."""
        began = self._clock.monotonic_s()
        whom = f"{self._model} at {self._client.base_url}"
        completion = await self._tries.answer(lambda: self._once(body, on_token), whom)
        seed = body.get("seed")
        return answer_of(
            completion,
            request,
            prices=self._prices,
            seed=seed if isinstance(seed, int) and -(2**63) <= seed < 2**63 else None,
            duration_ms=round((self._clock.monotonic_s() - began) * 1000),
        )

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
