"""A model that is asked again for a while when it cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tracklog.infra.clock import Clock
from tracklog.producers.model_around import ModelAround
from tracklog.producers.models import Model, ModelAnswer, ModelRequest, OnToken
from tracklog.schemas.errors import ModelUnavailable

__all__ = ["PatientModel"]

PAUSE_FIRST_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
LOOK_S: Final = 0.25
"""Between two looks at whether the wait is still wanted."""


class PatientModel(ModelAround):
    """Asks `model` again after growing pauses, for `wait_s` in all; then its error is raised.

    `check` is called while it waits: what it raises ends the wait.
    """

    def __init__(self, model: Model, wait_s: float, *, clock: Clock, check: Callable[[], None]) -> None:
        super().__init__(model)
        self._wait_s = wait_s
        self._clock = clock
        self._check = check

    def _around(self, model: Model) -> PatientModel:
        return PatientModel(model, self._wait_s, clock=self._clock, check=self._check)

    async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
        """See Model."""
        ends_s, pause_s = self._clock.monotonic_s() + self._wait_s, PAUSE_FIRST_S
        while True:
            try:
                return await self._model.reply(request, on_token=on_token)
            except ModelUnavailable:
                if self._clock.monotonic_s() + pause_s > ends_s:
                    raise
            await self._pause(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    async def _pause(self, pause_s: float) -> None:
        until_s = self._clock.monotonic_s() + pause_s
        while self._clock.monotonic_s() < until_s:
            self._check()
            await asyncio.sleep(LOOK_S)
