"""From the JSON of an Anthropic message, whole or as events, to a chat completion. Pure; trusts nothing it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from tracklog.producers.model_blocks import reply_message
from tracklog.producers.model_completion import check_grown
from tracklog.producers.models import begin_again
from tracklog.schemas.errors import ModelMalformed
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX

__all__ = ["Events", "completion_of"]

BLOCKS_MAX: Final = 4096
"""Of one reply."""


def completion_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message as a chat completion, as `answer_of` reads it. Raises ModelMalformed for what is no message."""
    blocks = message.get("content")
    if not isinstance(blocks, list) or not all(isinstance(block, Mapping) for block in blocks):
        said = f": {orjson.dumps(message['error']).decode()[:TEXT_FIELD_CHARS_MAX]}" if "error" in message else ""
        raise ModelMalformed(f"the message has no content{said}", hint="does the endpoint speak the Messages API?")
    choice = {"index": 0, "message": reply_message(blocks), "finish_reason": message.get("stop_reason")}
    return {"model": message.get("model"), "choices": [choice], "usage": _usage(message.get("usage"))}


class Events:
    """A message that comes as events. `on_text` is given the text of each."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        begin_again(on_text)
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}
        self._size = 0

    @property
    def finished(self) -> bool:
        """False at the end of the stream: it was cut."""
        return isinstance(self._message.get("stop_reason"), str)

    def take(self, event: Mapping[str, Any]) -> None:
        """Raises ModelMalformed for what is no event, and above the limit of a reply. Unknown events mean nothing."""
        kind = event.get("type")
        if kind == "message_start":
            self._start(_object(event, "message"))
        elif kind == "content_block_start":
            self._begin(_place(event), _object(event, "content_block"))
        elif kind == "content_block_delta":
            self._grow(_place(event), _object(event, "delta"))
        elif kind == "message_delta":
            self._message |= {name: value for name, value in _object(event, "delta").items() if value is not None}
            self._count(event.get("usage"))

    def message(self) -> dict[str, Any]:
        """As the endpoint would have sent it whole."""
        blocks = [self._whole(place, block) for place, block in sorted(self._blocks.items())]
        return {**self._message, "content": blocks, "usage": self._usage}

    def _start(self, message: Mapping[str, Any]) -> None:
        self._message |= message
        self._count(message.get("usage"))

    def _count(self, usage: object) -> None:
        """Counts are sent again as they grow; those that are left out stay."""
        if isinstance(usage, Mapping):
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _begin(self, place: int, block: Mapping[str, Any]) -> None:
        if place in self._blocks or len(self._blocks) >= BLOCKS_MAX:
            raise ModelMalformed(f"block {place} of the reply begins twice, or is one of too many", hint="ask again")
        self._blocks[place] = dict(block)
        self._told(block.get("text"))

    def _grow(self, place: int, delta: Mapping[str, Any]) -> None:
        block = self._blocks.get(place)
        if block is None:
            raise ModelMalformed(f"block {place} of the reply goes on and never began", hint="ask again")
        for name, value in delta.items():
            if name == "partial_json" and isinstance(value, str):
                self._add(len(value))
                self._inputs[place] = self._inputs.get(place, "") + value
            elif name == "citation":
                self._add(len(orjson.dumps(value)))
                block["citations"] = [*(block.get("citations") or ()), value]
            elif name != "type" and isinstance(value, str):
                self._add(len(value))
                block[name] = (block.get(name) or "") + value
                if name == "text":
                    self._told(value)

    def _whole(self, place: int, block: dict[str, Any]) -> dict[str, Any]:
        text = self._inputs.get(place)
        if not text:
            return block
        try:
            return {**block, "input": orjson.loads(text)}
        except orjson.JSONDecodeError:  # cut short by max_tokens: the tool is told what there is
            return {**block, "input": text}

    def _told(self, text: object) -> None:
        if isinstance(text, str) and text:
            self._on_text(text)

    def _add(self, characters: int) -> None:
        self._size += characters
        check_grown(self._size)


def _object(event: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = event.get(name)
    if not isinstance(value, Mapping):
        raise ModelMalformed(f"an event of the stream has no {name}", hint="does the endpoint speak the Messages API?")
    return value


def _place(event: Mapping[str, Any]) -> int:
    place = event.get("index")
    if not isinstance(place, int):
        raise ModelMalformed("an event of the stream names no block", hint="does the endpoint speak the Messages API?")
    return place


def _usage(raw: object) -> dict[str, Any]:
    """Counts as chat completions have them: there, what a cache gave or took is part of the input."""
    usage = raw if isinstance(raw, Mapping) else {}
    read, written = _number(usage, "cache_read_input_tokens"), _number(usage, "cache_creation_input_tokens")
    details = usage.get("output_tokens_details")
    return {
        "prompt_tokens": _number(usage, "input_tokens") + read + written,
        "completion_tokens": usage.get("output_tokens"),
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "completion_tokens_details": {"reasoning_tokens": _number(details, "thinking_tokens")},
    }


def _number(raw: object, name: str) -> int:
    value = raw.get(name) if isinstance(raw, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
