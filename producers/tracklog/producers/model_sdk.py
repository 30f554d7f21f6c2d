"""What the models behind a vendor's official SDK have in common: how they are made, named, asked and timed."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from tracklog.infra.clock import Clock, SystemClock
from tracklog.producers.model_completion import Prices, answer_of
from tracklog.producers.model_tries import BACKOFF_S, RETRIES, TIMEOUT_S, Tries, parameters
from tracklog.producers.models import ModelAnswer, ModelRequest
from tracklog.schemas.errors import InputError

__all__ = ["SdkModel"]

C = TypeVar("C")
_CLOCK: Final = SystemClock()


class SdkModel(Generic[C]):
    """`client` is an async client of the SDK; its own retries are not used.

    `sampling` holds texts, as they are recorded: JSON values (`{"temperature": "0.2"}`) or plain words. `prices`
    give the cost of a reply when the endpoint does not. Raises InputError.
    """

    CLIENT: ClassVar[tuple[type, str]]
    """What a client must be, and how that is called."""
    OURS: ClassVar[frozenset[str]]
    """What of a request is not sampling."""
    SAMPLING: ClassVar[Mapping[str, str]] = {}
    """What holds when nothing else is said."""

    def __init__(
        self,
        client: C,
        model: str,
        *,
        sampling: Mapping[str, str] | None = None,
        prices: Prices | None = None,
        retries: int = RETRIES,
        timeout_s: float = TIMEOUT_S,
        backoff_s: float = BACKOFF_S,
        clock: Clock = _CLOCK,
    ) -> None:
        kind, called = self.CLIENT
        if not isinstance(client, kind):
            raise InputError(f"{type(client).__name__} is no client of use here", hint=f"give an {called}")
        self._tries = Tries(retries, timeout_s, backoff_s)
        sdk: Any = client
        self._client: C = sdk.with_options(max_retries=0)
        self._model = model
        self.sampling: Mapping[str, str] = {**self.SAMPLING, **(sampling or {})}
        parameters(self.sampling, self.OURS)
        self._prices = prices
        self._clock = clock

    @property
    def name(self) -> str:
        return self._model

    def named(self, name: str) -> Self:
        """The model of that name at the same endpoint."""
        other = copy.copy(self)
        other._model = name
        return other

    async def _tried(
        self,
        once: Callable[[], Awaitable[Mapping[str, Any]]],
        request: ModelRequest,
        whom: object,
        *,
        seed: int | None = None,
    ) -> ModelAnswer:
        """The answer in the completion that `once` gives, tried within the bounds; `whom`: where the model is."""
        began = self._clock.monotonic_s()
        completion = await self._tries.answer(once, f"{self._model} at {whom}")
        return answer_of(
            completion,
            request,
            prices=self._prices,
            seed=seed,
            duration_ms=round((self._clock.monotonic_s() - began) * 1000),
        )
