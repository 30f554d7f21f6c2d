"""One address that messages are sent to: tried again with growing pauses, for a bounded time, and then given up on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from tracklog.consumers.webhooks.message import Message
from tracklog.consumers.webhooks.signing import Secrets, signed
from tracklog.infra.clock import Clock
from tracklog.infra.settings_http import WebhookSettings
from tracklog.producers.tool_post import Endpoint
from tracklog.schemas.errors import ToolError

__all__ = ["Receiver"]

logger: Final = logging.getLogger("tracklog.webhooks")
AT_ONCE_MAX: Final = 8
"""Messages that one address is sent at the same time."""
PAUSE_S_MAX: Final = 600.0
_US: Final = 1_000_000

StillOpen = Callable[[], Awaitable[bool]]


class Receiver:
    """One of the configured addresses. A redirect is not followed: nothing is sent anywhere else."""

    def __init__(self, url: str, secrets: Secrets, settings: WebhookSettings, clock: Clock) -> None:
        self._name = f"the webhook at {urlsplit(url).hostname}"
        self._endpoint = Endpoint.of(self._name, url, {}, timeout_s=settings.timeout_s, tls=None, clock=clock)
        self._secrets = secrets
        self._settings = settings
        self._clock = clock
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)
        self._away = False
        self.told = self.given_up = 0

    async def tell(self, message: Message, still_open: StillOpen) -> None:
        """Returns when it was taken, given up, or is `still_open` no more."""
        began_s, tries = self._clock.monotonic_s(), 0
        while await still_open():
            async with self._at_once:
                wrong = await self._send(message)
            tries += 1
            self._note(wrong)
            if not wrong:
                self.told += 1
                return
            pause_s = min(PAUSE_S_MAX, self._settings.pause_s * 2 ** (tries - 1))
            spent_s = self._clock.monotonic_s() - began_s
            if tries >= self._settings.tries_max or spent_s + pause_s > self._settings.give_up_s:
                self.given_up += 1
                logger.error("%s was given up on for message %s after %d tries", self._name, message.id, tries)
                return
            await asyncio.sleep(pause_s)

    async def _send(self, message: Message) -> str:
        """Why it was not taken; empty when it was. After a time-out nobody knows, so it is sent again."""
        headers = signed(message.id, self._clock.now_us() // _US, message.body, self._secrets.keys())
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                answer = await self._endpoint.post(headers, message.body, deadline_us=None)
        except TimeoutError:
            return f"no answer within {self._settings.timeout_s:g} s"
        except ToolError as error:
            return error.message
        return "" if answer.ok else f"it answered {answer.status}"

    def _note(self, wrong: str) -> None:
        """One line when an address goes away, and one when it is back."""
        if wrong and not self._away:
            logger.warning("%s does not take messages: %s; they are tried again", self._name, wrong)
        if not wrong and self._away:
            logger.warning("%s takes messages again", self._name)
        self._away = bool(wrong)
