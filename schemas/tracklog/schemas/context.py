"""Hashes of what a model was about to see: of one message, and of a whole context.

A message is hashed once; a context is the hash over its messages' hashes. So hashing every context of a run
costs each message once, and 32 bytes a message for each model call. Two contexts are equal when their hashes
are: that is how replay tells "the model answered differently" from "it was asked something else" (DESIGN §7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import orjson

from tracklog.schemas.values import HASH_BYTES, ZERO_HASH


def message_hash(
    role: str,
    content: object,
    tool_calls: object = None,
    tool_call_id: str | None = None,
    name: str | None = None,
) -> bytes:
    """SHA-256 of a message as the model reads it; whatever else a harness keeps beside it has no part in it.

    `content` and `tool_calls` are plain JSON values; the order of their keys does not matter, and no calls
    (None, or an empty list) is one thing. Raises TypeError for what JSON cannot say.
    """
    seen = [role, content, tool_calls or None, tool_call_id, name]
    return hashlib.sha256(orjson.dumps(seen, option=orjson.OPT_SORT_KEYS)).digest()


def context_hash(hashes: Sequence[bytes], rule_version: str, tools_hash: bytes | None = None) -> bytes:
    """SHA-256 of a context: the rule that assembled it, the tools offered with it, its messages in order.

    `tools_hash` is that of the tool schemas, None when there are none. Raises ValueError for a hash of
    another length, which would let two different contexts run together.
    """
    return ContextHash().of(hashes, rule_version, tools_hash)


class ContextHash:
    """`context_hash` of one context after another: of one that begins with the last, only the rest is hashed."""

    def __init__(self) -> None:
        self._start = b""
        self._so_far = hashlib.sha256()
        self._hashed: list[bytes] = []

    def of(self, hashes: Sequence[bytes], rule_version: str, tools_hash: bytes | None = None) -> bytes:
        """The hash of this context. Raises as `context_hash` does."""
        start = hashlib.sha256(rule_version.encode()).digest() + (tools_hash or ZERO_HASH)
        if start != self._start or self._hashed != list(hashes[: len(self._hashed)]):
            self._start, self._so_far, self._hashed = start, hashlib.sha256(start), []
        rest = hashes[len(self._hashed) :]
        if set(map(len, rest)) - {HASH_BYTES}:
            raise ValueError(f"a message hash has {HASH_BYTES} bytes")
        self._so_far.update(b"".join(rest))
        self._hashed += rest
        return self._so_far.copy().digest()
