"""Calls to Redis that come in bunches: one script for a batch of writes, one round trip for a batch of reads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, cast

from redis.exceptions import NoScriptError

from tracklog.infra.redis_client import RedisClient, store_errors

Argument = str | bytes | int


class RedisScript:
    """A Lua script, sent by its hash; a server that does not know it (restarted, flushed) is sent the text.

    A script runs alone and whole. It may run twice when an answer is lost, so it must guard its own writes.
    """

    def __init__(self, client: RedisClient, source: str) -> None:
        self._client = client
        self._source = source
        self._sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """The script's answer, as bytes and integers. Raises StoreUnavailable, StoreError."""
        with store_errors(self._client):
            try:
                return self._client.evalsha(self._sha, len(keys), *keys, *arguments)
            except NoScriptError:
                return self._client.eval(self._source, len(keys), *keys, *arguments)


def ask(client: RedisClient, commands: Iterable[Sequence[Argument]]) -> list[Any]:
    """The answers to many commands, in order, in one round trip. Not atomic. Raises StoreUnavailable, StoreError."""
    with store_errors(client), client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)
        return cast("list[Any]", pipeline.execute())
