"""Any OpenAI-compatible endpoint, through the official SDK (`pip install 'tracklog[openai]'`).

    429, 408, 409, 5xx, no connection, a time-out, a stream that is cut    tried again, `retries` times
    the quota is spent, any other 4xx                                      ModelRefused
    a body that is not JSON, has no message, or is over a limit            ModelMalformed

A try that fails leaves no record: what is recorded is the answer that `reply` returns.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Mapping
from typing import Any, Final

from tracklog.infra.clock import Clock, SystemClock
from tracklog.producers.model_completion import Chunks, Prices, answer_of, loaded
from tracklog.producers.models import ModelAnswer, ModelRequest, OnToken
from tracklog.schemas.errors import InputError, ModelMalformed, ModelRefused, ModelUnavailable

try:
    import openai
except ImportError as error:
    raise ImportError("the openai package is missing: pip install 'tracklog[openai]'") from error

__all__ = ["OpenAIModel", "Prices"]

RETRIES: Final = 4
TIMEOUT_S: Final = 600.0
"""For a reply, all tries together."""
BACKOFF_S: Final = 0.5
"""Before the second try; doubled for each further one."""
BACKOFF_S_MAX: Final = 30.0
RETRY_AFTER_S_MAX: Final = 120.0
"""An endpoint that asks for more patience than this is not available."""
_AGAIN: Final = frozenset((408, 409, 429))
_SPENT: Final = "insufficient_quota"
_OURS: Final = frozenset(("model", "messages", "tools", "stream", "stream_options", "n"))
_CLOCK: Final = SystemClock()
_HINTS: Final[Mapping[int, str]] = {
    400: "the request does not suit the model: is the context too long?",
    401: "check the api_key of the client",
    403: "check the api_key of the client and what it may use",
    404: "check the model's name and the base_url of the client",
    429: "the quota is spent",
}


class _Again(Exception):
    """A try that failed in a way that another may not. `after_s`: when the endpoint says so."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


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
        if retries < 0 or not timeout_s > 0 or backoff_s < 0:
            raise InputError("retries and backoff_s are 0 or more, timeout_s is above 0")
        self._client = client.with_options(max_retries=0)
        self._model = model
        self.sampling: Mapping[str, str] = dict(sampling or {})
        _parameters(self.sampling)
        self._prices = prices
        self._retries = retries
        self._timeout_s = timeout_s
        self._backoff_s = backoff_s
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
        """See Model. The request's sampling goes over the model's own. Streams when `on_token` is given."""
        parameters = _parameters({**self.sampling, **request.sampling})
        body = {"model": self._model, "messages": list(request.messages), **parameters}
        if request.tools:
            body["tools"] = list(request.tools)
        return await self.answer(body, request, on_token=on_token)

    async def answer(
        self, body: Mapping[str, Any], request: ModelRequest, *, on_token: OnToken | None = None
    ) -> ModelAnswer:
        """The answer to this body of a request, tried as `reply` tries."""
        began = self._clock.monotonic_s()
        completion = await self._tried(body, on_token)
        seed = body.get("seed")
        return answer_of(
            completion,
            request,
            prices=self._prices,
            seed=seed if isinstance(seed, int) and -(2**63) <= seed < 2**63 else None,
            duration_ms=round((self._clock.monotonic_s() - began) * 1000),
        )

    async def _tried(self, body: Mapping[str, Any], on_token: OnToken | None) -> Mapping[str, Any]:
        last = "no answer"
        try:
            async with asyncio.timeout(self._timeout_s) as bound:
                for number in range(self._retries + 1):
                    try:
                        return await self._once(body, on_token)
                    except _Again as again:
                        last = str(again)
                        if number < self._retries:
                            await asyncio.sleep(self._pause_s(number, again))
        except TimeoutError:
            if not bound.expired():
                raise
            raise self._unavailable(f"within {self._timeout_s:g} s", last) from None
        raise self._unavailable(f"in {self._retries + 1} tries", last)

    async def _once(self, body: Mapping[str, Any], on_token: OnToken | None) -> Mapping[str, Any]:
        """Raises _Again, ModelRefused, ModelMalformed, and what `on_token` raises."""
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
            raise _Again("the stream ended before the reply did")
        return chunks.completion()

    def _arguments(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """All of the body as it is: the SDK's own parameters know the sampling of one vendor only."""
        return {"model": self._model, "messages": [], "extra_body": dict(body), "timeout": self._timeout_s}

    def _pause_s(self, number: int, again: _Again) -> float:
        if again.after_s is None:
            return float(min(BACKOFF_S_MAX, self._backoff_s * 2**number))
        if again.after_s > RETRY_AFTER_S_MAX:
            raise self._unavailable(f"and asks for {again.after_s:g} s of patience", str(again))
        return again.after_s

    def _unavailable(self, bound: str, last: str) -> ModelUnavailable:
        return ModelUnavailable(
            f"{self._model} at {self._client.base_url} gave no reply {bound}: {last}",
            hint="the trajectory can be resumed when it answers again",
        )


async def _next_chunk(stream: Any) -> Mapping[str, Any] | None:
    try:
        chunk = await anext(stream, None)
        return None if chunk is None else dict(chunk.model_dump(exclude_unset=True, warnings=False))
    except Exception as error:
        raise _meaning(error) from error


def _meaning(error: Exception) -> Exception:
    """What an error of the SDK means here. Errors that are none of its own are those of its transport."""
    if isinstance(error, openai.APIResponseValidationError | json.JSONDecodeError | AttributeError):
        return ModelMalformed(f"the endpoint answered what is no completion: {error}", hint="ask again")
    if isinstance(error, openai.APIStatusError):
        return _status_meaning(error)
    if isinstance(error, openai.OpenAIError) and not isinstance(error, openai.APIError):
        return ModelRefused(f"the client cannot ask: {error}", hint="check the settings of the client")
    cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
    return _Again(f"{type(error).__name__}: {error}{cause}")


def _status_meaning(error: openai.APIStatusError) -> Exception:
    status = error.status_code
    said = f"the endpoint answered {status}: {error.message}"
    if (status in _AGAIN or status >= 500) and error.code != _SPENT:
        return _Again(said, _after_s(error.response.headers))
    return ModelRefused(said, hint=_HINTS.get(status, "the endpoint does not take the request"))


def _after_s(headers: Mapping[str, str]) -> float | None:
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        digits = headers.get(name, "")
        if digits.replace(".", "", 1).isdecimal():
            return float(digits) * unit_s
    return None


def _parameters(sampling: Mapping[str, str]) -> dict[str, Any]:
    """Raises InputError for what is not sampling."""
    ours = sorted(_OURS & set(sampling))
    if ours:
        raise InputError(f"{', '.join(ours)} is no sampling parameter", hint="it follows from the request")
    return {name: _value(text) for name, text in sampling.items()}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
