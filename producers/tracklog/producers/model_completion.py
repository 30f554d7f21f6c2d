"""From the JSON of a chat completion, whole or in chunks, to an answer. Pure; trusts nothing an endpoint says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tracklog.producers.models import ModelAnswer, ModelRequest, begin_again, calls_of, used_call_ids
from tracklog.schemas.errors import ModelMalformed
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.values import Usage

__all__ = ["REPLY_BYTES_MAX", "Chunks", "Prices", "answer_of", "check_grown", "loaded"]

REPLY_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of one reply as JSON, calls included."""
_COUNT_MAX: Final = 2**63 - 1
_MICRO: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Millionths of a US dollar for a million tokens. Input read from a cache, or written to one, is part of the
    input tokens that are counted."""

    input: int
    output: int
    cached_input: int | None = None
    cache_write: int | None = None

    def cost_micro_usd(self, usage: Usage, cache_written: int = 0) -> int:
        """`cache_written`: how many of the input tokens were written to a cache."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        written = min(cache_written, usage.input_tokens - cached)
        cached_price = self.input if self.cached_input is None else self.cached_input
        write_price = self.input if self.cache_write is None else self.cache_write
        total = (usage.input_tokens - cached - written) * self.input + cached * cached_price + written * write_price
        return round((total + usage.output_tokens * self.output) / _MICRO)


def loaded(data: bytes) -> Mapping[str, Any]:
    """The JSON object in an endpoint's answer. Raises ModelMalformed."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        begins = data[:80].decode("utf-8", "replace")
        raise ModelMalformed(
            f"the endpoint answered something that is not JSON ({error}): {begins!r}",
            hint="is base_url that of an endpoint for models?",
        ) from error
    if not isinstance(value, dict):
        raise ModelMalformed(f"the endpoint answered a JSON {type(value).__name__}, not an object")
    return value


def answer_of(
    completion: Mapping[str, Any],
    request: ModelRequest,
    *,
    prices: Prices | None = None,
    seed: int | None = None,
    duration_ms: int | None = None,
) -> ModelAnswer:
    """The first choice of a completion. Raises ModelMalformed, naming what is missing or over a limit."""
    choice = _first_choice(completion)
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise ModelMalformed("the completion's choice has no message", hint="ask again, or another endpoint")
    message = {"role": "assistant", **message}
    _check_size(message)
    usage = _usage(completion.get("usage"))
    return ModelAnswer(
        message=message,
        tool_calls=calls_of(message, used_call_ids(request.messages)),
        stop_reason=_word(choice.get("finish_reason")),
        usage=usage,
        cost_micro_usd=_cost(completion.get("usage"), usage, prices),
        served=_word(completion.get("model")),
        seed=seed,
        duration_ms=duration_ms,
    )


class Chunks:
    """A completion that comes in chunks. `on_text` is given the text of each."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        begin_again(on_text)
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._kept: dict[str, Any] = {}
        self._finish: str | None = None
        self._size = 0

    @property
    def finished(self) -> bool:
        """False at the end of the stream: it was cut."""
        return self._finish is not None

    def take(self, chunk: Mapping[str, Any]) -> None:
        """Raises ModelMalformed for what is no chunk, and above REPLY_BYTES_MAX."""
        self._kept |= {key: chunk[key] for key in ("model", "usage") if chunk.get(key) is not None}
        choices = chunk.get("choices") or ()
        if not choices:
            return
        choice = _first_choice(chunk)
        delta = choice.get("delta") or {}
        if not isinstance(delta, Mapping):
            raise ModelMalformed("a chunk's delta is no object")
        for name, value in delta.items():
            self._take_field(name, value)
        if isinstance(choice.get("finish_reason"), str):
            self._finish = choice["finish_reason"]

    def completion(self) -> dict[str, Any]:
        """As the endpoint would have sent it whole."""
        message: dict[str, Any] = {"role": "assistant", "content": None}
        message |= {name: "".join(parts) for name, parts in self._texts.items()}
        if self._calls:
            message["tool_calls"] = [call for _, call in sorted(self._calls.items())]
        return {**self._kept, "choices": [{"index": 0, "message": message, "finish_reason": self._finish}]}

    def _take_field(self, name: str, value: object) -> None:
        if name == "tool_calls":
            for part in _parts(value):
                self._take_call(part)
        elif isinstance(value, str) and name != "role":
            self._grow(len(value))
            self._texts.setdefault(name, []).append(value)
            if name == "content" and value:
                self._on_text(value)

    def _take_call(self, part: Mapping[str, Any]) -> None:
        """Parts of one call share an index; where there is none, an id begins a call."""
        function = part.get("function") or {}
        if not isinstance(function, Mapping):
            raise ModelMalformed("a part of a tool call has no function")
        call = self._call_at(part)
        for name in ("name", "arguments"):
            text = function.get(name)
            if isinstance(text, str):
                self._grow(len(text))
                call["function"][name] = call["function"].get(name, "") + text

    def _call_at(self, part: Mapping[str, Any]) -> dict[str, Any]:
        given, place = part.get("id"), part.get("index")
        if not isinstance(place, int):
            place = len(self._calls) if given or not self._calls else len(self._calls) - 1
        call = self._calls.setdefault(place, {"type": "function", "function": {}})
        if isinstance(given, str) and given:
            call.setdefault("id", given)
        return call

    def _grow(self, characters: int) -> None:
        self._size += characters
        check_grown(self._size)


def check_grown(size: int) -> None:
    """Raises ModelMalformed when a reply that is still coming is over the limit."""
    if size > REPLY_BYTES_MAX:
        raise ModelMalformed(f"a reply of more than {REPLY_BYTES_MAX} bytes", hint="set max_tokens")


def _parts(value: object) -> Iterator[Mapping[str, Any]]:
    for part in value if isinstance(value, list) else ():
        if not isinstance(part, Mapping):
            raise ModelMalformed("a part of a tool call is no object")
        yield part


def _first_choice(completion: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = completion.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        return choices[0]
    error = completion.get("error")
    said = f": {orjson.dumps(error).decode()[:TEXT_FIELD_CHARS_MAX]}" if error is not None else ""
    raise ModelMalformed(f"the completion has no choices{said}", hint="does the endpoint speak chat completions?")


def _check_size(message: Mapping[str, Any]) -> None:
    try:
        size = len(orjson.dumps(message))
    except orjson.JSONEncodeError as error:
        raise ModelMalformed(f"a reply that has no form in JSON: {error}", hint="ask the model again") from error
    if size > REPLY_BYTES_MAX:
        raise ModelMalformed(f"a reply of {size} bytes; at most {REPLY_BYTES_MAX} are taken", hint="set max_tokens")


def _usage(raw: object) -> Usage:
    usage = raw if isinstance(raw, Mapping) else {}
    given, made = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    return Usage(
        input_tokens=_count(usage, "prompt_tokens"),
        output_tokens=_count(usage, "completion_tokens"),
        cached_tokens=_count(given, "cached_tokens"),
        reasoning_tokens=_count(made, "reasoning_tokens"),
    )


def _count(raw: object, name: str) -> int:
    """0 for anything that is no count: an endpoint that does not count still replies."""
    value = raw.get(name) if isinstance(raw, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _COUNT_MAX else 0


def _cost(raw: object, usage: Usage, prices: Prices | None) -> int | None:
    """What the endpoint says it cost, in US dollars, else by the prices."""
    said = raw.get("cost") if isinstance(raw, Mapping) else None
    if isinstance(said, int | float) and not isinstance(said, bool) and 0 <= said < _COUNT_MAX / _MICRO:
        return round(said * _MICRO)
    if prices is None:
        return None
    given = raw.get("prompt_tokens_details") if isinstance(raw, Mapping) else None
    return prices.cost_micro_usd(usage, _count(given, "cache_write_tokens"))


def _word(value: object) -> str:
    """A short text of the endpoint's, without lone surrogates, which no event can hold."""
    return value[:TEXT_FIELD_CHARS_MAX].encode("utf-8", "replace").decode() if isinstance(value, str) else ""
