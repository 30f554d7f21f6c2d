"""Tells the configured addresses of each call that waits for a person, at least once (DESIGN §9).

What was not told yet is a list of the agenda, which is folded from the events and stored with the position in the log.
An entry is taken off when every address has it or was given up on, or the call waits no more. A crash in between, or
two routers at once, tell of it again, under the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tracklog.consumers.webhooks.message import message_of
from tracklog.consumers.webhooks.receiver import Receiver
from tracklog.consumers.webhooks.signing import Secrets
from tracklog.infra.clock import Clock
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import ask
from tracklog.infra.settings_http import WebhookSettings
from tracklog.processors.agenda import UNTOLD, TrajectoryAgenda, waiting_of
from tracklog.processors.running import Running
from tracklog.schemas.errors import StoreError

__all__ = ["Announcer", "announcer_of"]

LOOK_S: Final = 0.5
AT_ONCE_MAX: Final = 500
"""Entries of one partition that one look takes up."""
HELD_MAX: Final = 10_000
"""Entries that are being told at the same time; others wait in Redis."""


class Announcer:
    """Runs beside the router, on one event loop, over the partitions that `running` owns."""

    def __init__(
        self, client: RedisClient, running: Running[TrajectoryAgenda], receivers: Sequence[Receiver], answer_url: str
    ) -> None:
        self._client = client
        self._running = running
        self._receivers = receivers
        self._answer_url = answer_url
        self._next: dict[int, int] = {}
        self._tasks: asyncio.TaskGroup
        self._telling: dict[tuple[int, bytes], asyncio.Task[None]] = {}

    @property
    def told(self) -> int:
        """Messages that addresses have taken from this process."""
        return sum(one.told for one in self._receivers)

    @property
    def telling(self) -> int:
        """Calls that are being told of now."""
        return len(self._telling)

    @property
    def given_up(self) -> int:
        return sum(one.given_up for one in self._receivers)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; what was not told by then is told by whoever has the partition next."""
        async with asyncio.TaskGroup() as self._tasks:
            while not stop.is_set():
                with suppress(StoreError):
                    await self.look()
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), LOOK_S)
            for task in self._telling.values():
                task.cancel()

    async def look(self) -> None:
        """Takes up what is new in the partitions that are owned. Raises StoreError."""
        owned = set(self._running.loop.positions)
        self._next = {partition: self._next.get(partition, 0) for partition in owned}
        for partition in owned:
            if len(self._telling) < HELD_MAX:
                await self._take_up(partition)

    async def _take_up(self, partition: int) -> None:
        first = next_offset = self._next[partition]
        command = ("ZRANGEBYSCORE", self._key(partition), first, "+inf", "WITHSCORES", "LIMIT", 0, AT_ONCE_MAX)
        (found,) = await asyncio.to_thread(ask, self._client, [command])
        for member, score in zip(found[::2], found[1::2], strict=True):
            about = (partition, member)
            if about not in self._telling:
                self._telling[about] = self._tasks.create_task(self._tell(*about))
            next_offset = int(score) + 1
        if self._next[partition] == first:  # else one that could not be taken off is to be found again
            self._next[partition] = next_offset

    async def _tell(self, partition: int, member: bytes) -> None:
        try:
            message = message_of(waiting_of(member), self._answer_url)

            async def still_open() -> bool:
                return partition in self._running.loop.positions and await self._is_untold(partition, member)

            await asyncio.gather(*(receiver.tell(message, still_open) for receiver in self._receivers))
            await asyncio.to_thread(ask, self._client, [("ZREM", self._key(partition), member)])
        except StoreError:
            self._next[partition] = -1  # Redis was away: it is found again, and told again if need be
        finally:
            del self._telling[partition, member]

    async def _is_untold(self, partition: int, member: bytes) -> bool:
        (score,) = await asyncio.to_thread(ask, self._client, [("ZSCORE", self._key(partition), member)])
        return score is not None

    def _key(self, partition: int) -> str:
        return self._running.store.keys.key(partition, UNTOLD)


def announcer_of(
    settings: WebhookSettings, client: RedisClient, running: Running[TrajectoryAgenda], clock: Clock
) -> Announcer | None:
    """None when there is nobody to tell. Raises SettingsError, naming the secrets file, InvalidTool."""
    if not settings.urls:
        return None
    secrets = Secrets(Path(settings.secret_file))
    receivers = [Receiver(url, secrets, settings, clock) for url in settings.urls]
    return Announcer(client, running, receivers, settings.answer_url)
