"""Asking an endpoint until it answers, within bounds: what every client of a model does alike.

    429, 408, 409, 5xx, no connection, a time-out, a stream that is cut    tried again, `retries` times
    the quota is spent, any other 4xx                                      ModelRefused
    a body that is not JSON, has no message, or is over a limit            ModelMalformed

A try that fails leaves no record: what is recorded is the answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from tracklog.schemas.errors import InputError, ModelMalformed, ModelRefused, ModelUnavailable

__all__ = ["BACKOFF_S", "RETRIES", "TIMEOUT_S", "Again", "Tries", "meaning", "parameters", "status_meaning"]

RETRIES: Final = 4
TIMEOUT_S: Final = 600.0
"""For a reply, all tries together."""
BACKOFF_S: Final = 0.5
"""Before the second try; doubled for each further one."""
BACKOFF_S_MAX: Final = 30.0
RETRY_AFTER_S_MAX: Final = 120.0
"""An endpoint that asks for more patience than this is not available."""
_AGAIN: Final = frozenset((408, 409, 429))
_HINTS: Final[Mapping[int, str]] = {
    400: "the request does not suit the model: is the context too long?",
    401: "check the api_key of the client",
    403: "check the api_key of the client and what it may use",
    404: "check the model's name and the base_url of the client",
    429: "the quota is spent",
}

T = TypeVar("T")


class Again(Exception):
    """A try that failed in a way that another may not. `after_s`: when the endpoint says so."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class Tries:
    """How often and how long. Raises InputError for what makes no sense."""

    retries: int = RETRIES
    timeout_s: float = TIMEOUT_S
    backoff_s: float = BACKOFF_S

    def __post_init__(self) -> None:
        if self.retries < 0 or not self.timeout_s > 0 or self.backoff_s < 0:
            raise InputError("retries and backoff_s are 0 or more, timeout_s is above 0")

    async def answer(self, once: Callable[[], Awaitable[T]], whom: str) -> T:
        """What `once` gives, called again while it raises Again. Raises ModelUnavailable about `whom`."""
        last = "no answer"
        try:
            async with asyncio.timeout(self.timeout_s) as bound:
                for number in range(self.retries + 1):
                    try:
                        return await once()
                    except Again as again:
                        last = str(again)
                        if number < self.retries:
                            await asyncio.sleep(self._pause_s(number, again, whom))
        except TimeoutError:
            if not bound.expired():
                raise
            raise _unavailable(whom, f"within {self.timeout_s:g} s", last) from None
        raise _unavailable(whom, f"in {self.retries + 1} tries", last)

    def _pause_s(self, number: int, again: Again, whom: str) -> float:
        if again.after_s is None:
            return float(min(BACKOFF_S_MAX, self.backoff_s * 2**number))
        if again.after_s > RETRY_AFTER_S_MAX:
            raise _unavailable(whom, f"and asks for {again.after_s:g} s of patience", str(again))
        return again.after_s


def _unavailable(whom: str, bound: str, last: str) -> ModelUnavailable:
    return ModelUnavailable(
        f"{whom} gave no reply {bound}: {last}", hint="the trajectory can be resumed when it answers again"
    )


def meaning(error: Exception, sdk: Any, base: type[Exception], of_status: Callable[[Any], Exception]) -> Exception:
    """What an error of an SDK means here. Errors that are none of its own are those of its transport.

    `sdk` has the errors that both SDKs call alike, `base` is the one above them all.
    """
    if isinstance(error, sdk.APIResponseValidationError | json.JSONDecodeError | AttributeError):
        return ModelMalformed(f"the endpoint answered what is no reply: {error}", hint="ask again")
    if isinstance(error, sdk.APIStatusError):
        return of_status(error)
    if isinstance(error, base) and not isinstance(error, sdk.APIError):
        return ModelRefused(f"the client cannot ask: {error}", hint="check the settings of the client")
    cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
    return Again(f"{type(error).__name__}: {error}{cause}")


def status_meaning(status: int, message: str, headers: Mapping[str, str], *, spent: bool = False) -> Exception:
    """`spent`: the endpoint says that no more is to be had, whatever its status."""
    said = f"the endpoint answered {status}: {message}"
    if (status in _AGAIN or status >= 500) and not spent:
        return Again(said, _after_s(headers))
    return ModelRefused(said, hint=_HINTS.get(status, "the endpoint does not take the request"))


def _after_s(headers: Mapping[str, str]) -> float | None:
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        digits = headers.get(name, "")
        if digits.replace(".", "", 1).isdecimal():
            return float(digits) * unit_s
    return None


def parameters(sampling: Mapping[str, str], ours: Collection[str]) -> dict[str, Any]:
    """The values of recorded texts. Raises InputError for what is not sampling: the names in `ours`."""
    wrong = sorted(set(ours) & set(sampling))
    if wrong:
        raise InputError(f"{', '.join(wrong)} is no sampling parameter", hint="it follows from the request")
    return {name: _value(text) for name, text in sampling.items()}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
