"""Content blocks, as Anthropic's messages have them, and the chat-completions form that is recorded. Pure.

    blocks                                      chat form
    system                                      system message
    user: text, image, document                 user message; other blocks than one text stay blocks
    user: tool_result                           tool message, one each
    assistant: text                             content
    assistant: tool_use                         tool_calls, their input as JSON text
    assistant: thinking, signatures, the rest   `content_blocks`: all of the reply's blocks, as they came

So a reply is sent back just as it was made, whoever goes on with the run. A message whose blocks say something else
than its content and its calls is rebuilt from these.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import orjson

__all__ = [
    "BLOCKS",
    "chat_messages",
    "chat_tools",
    "reply_blocks",
    "reply_message",
    "request_of",
    "safe_messages",
    "tool_of",
]

BLOCKS: Final = "content_blocks"
"""The key in a chat message: what the chat form has no place for."""
_SYSTEM: Final = ("system", "developer")
_NOT_SAFE: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MARKS: Final = ("cache_control",)
"""Says how a block is to be handled, not what it is; programs move it from turn to turn."""

Message = Mapping[str, Any]
Block = Mapping[str, Any]


def reply_message(blocks: Sequence[Block]) -> dict[str, Any]:
    """The chat message of a reply."""
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    text = "".join(one for one in texts if isinstance(one, str))
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    if calls:
        message["tool_calls"] = calls
    if _plain_blocks(message) != [_without_nulls(block) for block in blocks]:
        message[BLOCKS] = [dict(block) for block in blocks]
    return message


def reply_blocks(message: Message) -> list[dict[str, Any]]:
    """The blocks of an assistant's message: those that it came in, calls under the ids that they have now."""
    kept = message.get(BLOCKS)
    if not isinstance(kept, list) or not _says(kept, message):
        return _plain_blocks(message)
    calls = iter(message.get("tool_calls") or ())
    return [{**block, "id": next(calls)["id"]} if _is_call(block) else dict(block) for block in kept]


def request_of(messages: Iterable[Message]) -> dict[str, Any]:
    """`system` and `messages` of a request. System messages after the first other one are told as the user's.

    What follows one another with one role is one message, as a tool's results must be.
    """
    rest = list(messages)
    system: list[dict[str, Any]] = []
    while rest and rest[0].get("role") in _SYSTEM:
        system += _content(rest.pop(0).get("content"))
    told = [(_role(one), safe_blocks(_told(one))) for one in rest]
    grouped = groupby(((role, blocks) for role, blocks in told if blocks), lambda pair: pair[0])
    body: dict[str, Any] = {
        "messages": [
            {"role": role, "content": _results_first([one for _, blocks in pairs for one in blocks])}
            for role, pairs in grouped
        ]
    }
    return {"system": system, **body} if system else body


def chat_messages(system: Any, messages: Iterable[Message]) -> Iterator[dict[str, Any]]:
    """The chat messages of a request."""
    if system:
        yield {"role": "system", "content": _shown(system)}
    for message in messages:
        content = message.get("content")
        if not isinstance(content, list):
            yield dict(message)
        elif message.get("role") == "assistant":
            yield reply_message(content)
        else:
            yield from _heard(message, content)


def chat_tools(tools: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Definitions of tools in the chat form; those that the endpoint itself runs stay as they are."""
    return [_chat_tool(_unmarked(one)) for one in tools]


def safe_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """A program's own messages, as an endpoint takes them."""
    return [
        {**one, "content": safe_blocks(one["content"])} if isinstance(one.get("content"), list) else dict(one)
        for one in messages
    ]


def safe_blocks(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """What an endpoint takes of blocks that it gave itself: no blank texts, no input but an object, ids of letters."""
    return [_safe(block) for block in blocks if not _is_blank(block)]


def safe_id(call_id: str) -> str:
    """An id that the endpoint takes: two ids stay two."""
    if _NOT_SAFE.search(call_id) is None:
        return call_id
    return f"{_NOT_SAFE.sub('_', call_id)}-{hashlib.sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _safe(block: Block) -> dict[str, Any]:
    if _is_call(block):
        given = block.get("input")
        return {**block, "id": safe_id(str(block.get("id"))), "input": given if isinstance(given, dict) else {}}
    if block.get("type") == "tool_result":
        return {**block, "tool_use_id": safe_id(str(block.get("tool_use_id")))}
    return dict(block)


def tool_of(definition: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as the endpoint is told of it."""
    function = definition.get("function")
    if definition.get("type") != "function" or not isinstance(function, Mapping):
        return dict(definition)
    described = {"description": function["description"]} if function.get("description") else {}
    schema = function.get("parameters") or {"type": "object"}
    return {"name": function.get("name"), **described, "input_schema": schema}


def _chat_tool(one: Mapping[str, Any]) -> dict[str, Any]:
    if "input_schema" not in one:
        return dict(one)
    function = {"name": one.get("name"), "description": one.get("description", ""), "parameters": one["input_schema"]}
    return {"type": "function", "function": function}


def _call(block: Block) -> dict[str, Any]:
    """The input of a call that was cut short is the text of its beginning."""
    given = block.get("input")
    arguments = given if isinstance(given, str) else orjson.dumps({} if given is None else given).decode()
    return {"id": block.get("id"), "type": "function", "function": {"name": block.get("name"), "arguments": arguments}}


def _plain_blocks(message: Message) -> list[dict[str, Any]]:
    blocks = _content(message.get("content"))
    for call in message.get("tool_calls") or ():
        function = call["function"]
        made = {"name": function["name"], "input": _input(function.get("arguments"))}
        blocks.append({"type": "tool_use", "id": call["id"], **made})
    return blocks


def _input(arguments: object) -> dict[str, Any]:
    """An endpoint takes nothing but an object, also where its own model wrote something else."""
    try:
        given = orjson.loads(arguments or "{}") if isinstance(arguments, str) else arguments
    except orjson.JSONDecodeError:
        return {}
    return given if isinstance(given, dict) else {}


def _is_blank(block: Block) -> bool:
    """Models write such a text, and their endpoints refuse it."""
    return block.get("type") == "text" and not str(block.get("text") or "").strip()


def _is_call(block: Block) -> bool:
    return block.get("type") == "tool_use"


def _says(blocks: Sequence[Block], message: Message) -> bool:
    """Whether the blocks say what the message says, but for the ids of calls."""
    said = reply_message(blocks)
    return _without_ids(said) == _without_ids(message)


def _without_ids(message: Message) -> tuple[Any, list[Any]]:
    return message.get("content") or None, [call.get("function") for call in message.get("tool_calls") or ()]


def _role(message: Message) -> str:
    return "assistant" if message.get("role") == "assistant" else "user"


def _told(message: Message) -> list[dict[str, Any]]:
    if message.get("role") == "assistant":
        return reply_blocks(message)
    if message.get("role") != "tool":
        return _content(message.get("content"))
    content = message.get("content")
    failed = {"is_error": True} if message.get("is_error") else {}
    given = content if isinstance(content, list) else str(content or "")
    return [{"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": given, **failed}]


def _results_first(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(blocks, key=lambda block: block.get("type") != "tool_result")


def _content(content: Any) -> list[dict[str, Any]]:
    """As blocks. An empty text is none: endpoints refuse it."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [_part(one) for one in content or ()]


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part of a chat message as a block; pictures are named differently."""
    if part.get("type") != "image_url":
        return dict(part)
    url = str((part.get("image_url") or {}).get("url", ""))
    head, comma, data = url.partition(";base64,")
    if head.startswith("data:") and comma:
        return {
            "type": "image",
            "source": {"type": "base64", "media_type": head.removeprefix("data:"), "data": data},
        }
    return {"type": "image", "source": {"type": "url", "url": url}}


def _heard(message: Message, content: Sequence[Block]) -> Iterator[dict[str, Any]]:
    """What is no assistant's: results one by one, what lies between them together."""
    for is_result, blocks in groupby(content, lambda block: block.get("type") == "tool_result"):
        if not is_result:
            yield {"role": message.get("role"), "content": _shown(list(blocks))}
            continue
        for block in blocks:
            failed = {"is_error": True} if block.get("is_error") else {}
            answer = {"tool_call_id": block.get("tool_use_id"), "content": _shown(block.get("content") or "")}
            yield {"role": "tool", **answer, **failed}


def _shown(content: Any) -> Any:
    """What is shown, without marks; one text alone is that text."""
    if not isinstance(content, list):
        return content
    blocks = [_unmarked(block) for block in content]
    if len(blocks) == 1 and set(blocks[0]) == {"type", "text"} and blocks[0]["type"] == "text":
        return blocks[0]["text"]
    return blocks


def _unmarked(block: Block) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name not in _MARKS and value is not None}


def _without_nulls(block: Block) -> dict[str, Any]:
    return {name: value for name, value in block.items() if value is not None}
