"""Giving on a model's text while it comes (`infra.token_relay`). Nothing here holds up the model or fails its call.

relay = TokenRelay(client, prefix, entropy)
async with relay:
    agent = Agent("traveller", relay.of("trip-1", model))
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from tracklog.infra.clock import Entropy
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.token_relay import TEXT_CHARS_MAX, Heard, append
from tracklog.producers.model_around import ModelAround
from tracklog.producers.models import Model, ModelAnswer, ModelRequest, OnToken, begin_again
from tracklog.schemas.errors import StoreError

__all__ = ["RelayedModel", "TokenRelay"]

logger: Final = logging.getLogger("tracklog.relay")
FLUSH_S: Final = 0.05
AWAY_S: Final = 1.0
"""The pause after Redis was away; what comes meanwhile is lost."""
WAITING_MAX: Final = 5000
"""Records that wait for Redis in one process. What is above it is lost."""

Say = Callable[[Heard], None]


class TokenRelay:
    """Of one process, on one event loop."""

    def __init__(self, client: RedisClient, prefix: str, entropy: Entropy) -> None:
        self._client = client
        self._prefix = prefix
        self._entropy = entropy
        self._waiting: deque[tuple[str, Heard]] = deque()
        self._came = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.lost = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def of(self, trajectory_id: str, model: Model) -> RelayedModel:
        """The model, heard while it replies in this trajectory."""
        return RelayedModel(model, lambda heard: self._say(trajectory_id, heard), self._entropy)

    def _say(self, trajectory_id: str, heard: Heard) -> None:
        if len(self._waiting) >= WAITING_MAX:
            self.lost += 1
            return
        joined = _joined(self._waiting[-1], (trajectory_id, heard)) if self._waiting else None
        if joined is not None:
            self._waiting[-1] = joined
            return
        self._waiting.append((trajectory_id, heard))
        self._came.set()

    async def _run(self) -> None:
        away = False
        while True:
            await self._came.wait()
            await asyncio.sleep(FLUSH_S)
            self._came.clear()
            said, self._waiting = list(self._waiting), deque()
            try:
                await asyncio.to_thread(append, self._client, self._prefix, said)
                away = False
            except StoreError as error:
                self.lost += len(said)
                if not away:
                    logger.warning("tokens are not given on: %s", error.message)
                away = True
                await asyncio.sleep(AWAY_S)


def _joined(last: tuple[str, Heard], new: tuple[str, Heard]) -> tuple[str, Heard] | None:
    """One record of two texts of the same attempt, where that is possible: models say a word at a time."""
    (last_id, before), (new_id, after) = last, new
    if last_id != new_id or before[:2] != after[:2] or before.text is None or after.text is None:
        return None
    text = before.text + after.text
    return (last_id, before._replace(text=text)) if len(text) <= TEXT_CHARS_MAX else None


class RelayedModel(ModelAround):
    """A model whose text is given on while it comes; it is asked to stream for that."""

    def __init__(self, model: Model, say: Say, entropy: Entropy) -> None:
        super().__init__(model)
        self._say = say
        self._entropy = entropy

    def _around(self, model: Model) -> RelayedModel:
        return RelayedModel(model, self._say, self._entropy)

    async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
        """See Model."""
        ear = _Ear(self._say, self._entropy, request.replies_before or 0, on_token)
        return await self._model.reply(request, on_token=ear)


class _Ear:
    """Hears one call of a model, which may begin more than once."""

    def __init__(self, say: Say, entropy: Entropy, reply: int, also: OnToken | None) -> None:
        self._say = say
        self._entropy = entropy
        self._reply = reply
        self._also = also
        self._attempt = ""
        self._silent = False
        self.begin()

    def begin(self) -> None:
        """The call is made, or made again: what was heard of it before is void."""
        if self._silent:
            return
        self._attempt, self._silent = self._entropy.nonce().hex()[:16], True
        self._say(Heard(self._reply, self._attempt))
        if self._also is not None:
            begin_again(self._also)

    def __call__(self, text: str) -> None:
        self._silent = False
        for at in range(0, len(text), TEXT_CHARS_MAX):
            self._say(Heard(self._reply, self._attempt, text[at : at + TEXT_CHARS_MAX]))
        if self._also is not None:
            self._also(text)
