"""A small endpoint of the Messages API on 127.0.0.1: it answers from a script, counts, and fails when told to.

Strict as the real one where a client could go wrong: ids of calls, blank texts, roles, results that are missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import anthropic

from tests.support.loopback import Asked, Reply, loopback

TOO_LONG = "x" * (17 * 1024 * 1024)
THOUGHT = {"type": "thinking", "thinking": "They want a flight.", "signature": "c2lnbmVk"}
_ID = re.compile(r"[a-zA-Z0-9_-]+")


def asks_for(call_id: str, name: str, **arguments: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}]


def says(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


def client_of(url: str, api_key: str = "none") -> anthropic.AsyncAnthropic:
    """A client that loads no certificates, which takes longer than a test."""
    plain = anthropic.DefaultAsyncHttpxClient(verify=False)
    return anthropic.AsyncAnthropic(base_url=url, api_key=api_key, http_client=plain)


class Endpoint:
    """`replies` are lists of blocks: a request with n assistant messages in it gets reply n. `faults` come first."""

    def __init__(self, replies: Sequence[list[dict[str, Any]]], faults: Sequence[str]) -> None:
        self.replies = replies
        self.faults = list(faults)
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.url = ""

    def answer(self, asked: Asked) -> Reply:
        body = asked.json
        self.bodies.append(body)
        self.headers.append(asked.headers)
        if self.faults:
            return fault(self.faults.pop(0), streams=bool(body.get("stream")))
        wrong = problem(body)
        if wrong:
            return error(400, "invalid_request_error", wrong)
        blocks = self.replies[sum(message["role"] == "assistant" for message in body["messages"])]
        return (
            streamed(message_of(blocks)) if body.get("stream") else Reply(body=json.dumps(message_of(blocks)).encode())
        )


@contextmanager
def anthropic_server(*replies: list[dict[str, Any]], faults: Sequence[str] = ()) -> Iterator[Endpoint]:
    endpoint = Endpoint(replies, faults)
    with loopback(endpoint.answer) as server:
        endpoint.url = server.url
        yield endpoint


def message_of(blocks: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    calls = any(block["type"] == "tool_use" for block in blocks)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted-1",
        "content": blocks,
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 7,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 20,
            "output_tokens": 3,
            "output_tokens_details": {"thinking_tokens": 2},
        },
        **more,
    }


def error(status: int, kind: str, message: str, **more: Any) -> Reply:
    said = {"type": "error", "error": {"type": kind, "message": message}}
    return Reply(status, json.dumps(said).encode(), **more)


def fault(name: str, *, streams: bool = False) -> Reply:
    if name == "cut" and streams:
        whole = streamed(message_of(says("it is booked")))
        return Reply(body=whole.body[: len(whole.body) // 2], content_type=whole.content_type)
    return {
        "429": error(429, "rate_limit_error", "slow down"),
        "500": error(500, "api_error", "oops"),
        "529": error(529, "overloaded_error", "Overloaded"),
        "cut": Reply(body=b'{"content"', length=1000),
        "malformed": Reply(body=b'{"content": ['),
        "too long": Reply(body=json.dumps(message_of(says(TOO_LONG))).encode()),
    }[name]


def streamed(message: dict[str, Any], *, ends: bool = True) -> Reply:
    """The message as events, texts and inputs in parts."""
    counted = {**message["usage"], "output_tokens": 1}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": counted}},
        {"type": "ping"},
    ]
    for index, block in enumerate(message["content"]):
        start, deltas = _deltas(block)
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    if ends:
        ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        events.append({"type": "message_delta", "delta": ended, "usage": {"output_tokens": 3}})
        events.append({"type": "message_stop"})
    return sent(*events)


def sent(*events: dict[str, Any]) -> Reply:
    lines = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events]
    return Reply(body="".join(lines).encode(), content_type="text/event-stream")


def _deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        words = re.findall(r"\S+\s*", block["text"])
        return {**block, "text": ""}, [{"type": "text_delta", "text": word} for word in words]
    if block["type"] == "tool_use":
        text = json.dumps(block["input"])
        parts = ("", text[:3], text[3:])
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
    if block["type"] == "thinking":
        thought = [
            {"type": "thinking_delta", "thinking": part} for part in (block["thinking"][:5], block["thinking"][5:])
        ]
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [*thought, signed]
    return block, []


def problem(body: Mapping[str, Any]) -> str:
    """What the real endpoint would refuse."""
    if not isinstance(body.get("max_tokens"), int):
        return "max_tokens: Field required"
    wanted: set[str] = set()
    for position, message in enumerate(body["messages"]):
        blocks = message["content"] if isinstance(message["content"], list) else says(message["content"])
        if message["role"] not in ("user", "assistant") or not blocks:
            return f"messages.{position}: no role or no content"
        if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
            return f"messages.{position}: text content blocks must contain non-whitespace text"
        given = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if given != wanted:
            return f"messages.{position}: tool_use ids without tool_result blocks: {sorted(wanted ^ given)}"
        called = [block for block in blocks if block["type"] == "tool_use"]
        wanted = {block["id"] for block in called}
        if not all(_ID.fullmatch(one) for one in wanted) or len(wanted) != len(called):
            return f"messages.{position}: tool_use.id does not match the pattern"
        if not all(isinstance(block["input"], dict) for block in called):
            return f"messages.{position}: tool_use.input should be an object"
    return ""
