"""Calls to Redis that come in bunches: scripts for batches of writes, one round trip for a batch of reads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    NoScriptError,
    RedisError,
    SlotNotCoveredError,
    TimeoutError,
    TryAgainError,
)

from tracklog.infra.redis_client import RedisClient, store_errors
from tracklog.infra.redis_line import Lines

Argument = str | bytes | int

_ASK_AGAIN: Final = (
    NoScriptError,
    MovedError,
    AskError,
    TryAgainError,
    ClusterDownError,
    SlotNotCoveredError,
    ConnectionError,
    TimeoutError,
)
"""After which a call is made once more in the ordinary way, which knows of other servers and of new connections."""


class RedisScript:
    """A Lua script, sent by its hash; a server that does not know it (restarted, flushed) is sent the text.

    A script runs alone and whole. It may run twice when an answer is lost, so it must guard its own writes.
    """

    def __init__(self, client: RedisClient, source: str) -> None:
        self._client = client
        self._source = source
        self._sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        self._lines = Lines(client)

    def __call__(self, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """The script's answer, as bytes and integers. Raises StoreUnavailable, StoreError."""
        with store_errors(self._client):
            try:
                return self._client.evalsha(self._sha, len(keys), *keys, *arguments)
            except NoScriptError:
                return self._client.eval(self._source, len(keys), *keys, *arguments)

    def send(self, keys: Sequence[str], arguments: Sequence[Argument]) -> Callable[[], Any]:
        """Sends a call and does not wait. What is given back waits for the answer, and raises as a call does. One
        thread sends and reads."""
        try:
            sent = self._lines.of(keys[0]).send(("EVALSHA", self._sha, len(keys), *keys, *arguments))
        except RedisError:
            return lambda: self(keys, arguments)

        def answer() -> Any:
            found = sent.read()
            if isinstance(found, _ASK_AGAIN):
                return self(keys, arguments)
            if isinstance(found, Exception):
                with store_errors(self._client):
                    raise found
            return found

        return answer


def ask(client: RedisClient, commands: Iterable[Sequence[Argument]]) -> list[Any]:
    """The answers to many commands, in order, in one round trip. Not atomic. Raises StoreUnavailable, StoreError."""
    with store_errors(client), client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)
        return cast("list[Any]", pipeline.execute())
