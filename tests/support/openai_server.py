"""A small chat-completions endpoint on 127.0.0.1: it answers from a script, counts, and fails when told to."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import openai

FAULTS = ("429", "500", "cut", "malformed", "too long")
TOO_LONG = "x" * (17 * 1024 * 1024)


def asks_for(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def client_of(url: str) -> openai.AsyncOpenAI:
    """A client that loads no certificates, which takes longer than a test."""
    plain = openai.DefaultAsyncHttpxClient(verify=False)
    return openai.AsyncOpenAI(base_url=url, api_key="none", http_client=plain)


class Endpoint:
    """`replies` in order: a request with n assistant messages in it gets reply n. `faults` come before replies."""

    def __init__(self, replies: Sequence[Mapping[str, Any]], faults: Sequence[str] = ()) -> None:
        self.replies = replies
        self.faults = list(faults)
        self.answered: Counter[int] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.url = ""
        self.moment: Callable[[str], None] = lambda _: None
        """Told when a reply is asked for, and when it was sent."""


@contextmanager
def openai_server(*replies: Mapping[str, Any], faults: Sequence[str] = ()) -> Iterator[Endpoint]:
    endpoint = Endpoint(replies, faults)
    handler = type("Handler", (_Handler,), {"endpoint": endpoint})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    endpoint: ClassVar[Endpoint]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.endpoint.bodies.append(body)
        if self.endpoint.faults:
            self._fail(self.endpoint.faults.pop(0))
            return
        number = sum(message["role"] == "assistant" for message in body["messages"])
        self.endpoint.answered[number] += 1
        self.endpoint.moment(f"the model is asked for reply {number + 1}")
        with suppress(ConnectionError):  # whoever asked may be killed by now
            self._answer(_completion(self.endpoint.replies[number]), streams=bool(body.get("stream")))
            self.endpoint.moment(f"the model has given reply {number + 1}")

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def _answer(self, completion: dict[str, Any], *, streams: bool) -> None:
        if not streams:
            self._send(200, json.dumps(completion).encode())
            return
        choice = completion["choices"][0]
        deltas = [{"role": "assistant"}, *({"content": word} for word in (choice["message"]["content"] or "").split())]
        calls = choice["message"].get("tool_calls") or ()
        deltas += [{"tool_calls": [{**call, "index": place}]} for place, call in enumerate(calls)]
        parts = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
        parts.append({"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]})
        lines = [b"data: " + json.dumps({**completion, "choices": [part]}).encode() + b"\n\n" for part in parts]
        self._send(200, b"".join([*lines, b"data: [DONE]\n\n"]), "text/event-stream")

    def _fail(self, fault: str) -> None:
        if fault in ("429", "500"):
            self._send(int(fault), b'{"error": {"message": "not now"}}')
        elif fault == "malformed":
            self._send(200, b'{"choices": [')
        elif fault == "too long":
            self._send(200, json.dumps(_completion(says(TOO_LONG))).encode())
        else:
            self._send(200, b'{"choices"', length=1000)

    def _send(self, status: int, data: bytes, kind: str = "application/json", length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length if length is not None else len(data)))
        self.end_headers()
        self.wfile.write(data)


def _completion(message: Mapping[str, Any]) -> dict[str, Any]:
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted-1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
