"""Time and randomness: the only module that reads either (DESIGN §15, invariant 4).

Everything else takes a `Clock` or an `Entropy` as a parameter, so that one seed and one virtual clock
replay a whole run. Recorded times are for people; no decision about a trajectory rests on them.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from typing import Final, Protocol

__all__ = [
    "NONCE_BYTES",
    "Clock",
    "Entropy",
    "ManualClock",
    "SeededEntropy",
    "SystemClock",
    "SystemEntropy",
    "TwoClocks",
]

NONCE_BYTES: Final = 16
"""Two processes draw the same nonce with a chance of 2**-128: never."""


class Clock(Protocol):
    """What time it is, in two senses that must not be mixed."""

    def now_us(self) -> int:
        """Microseconds since 1970 UTC. May jump either way; for people and for records."""

    def monotonic_s(self) -> float:
        """Seconds since some fixed point, never going back. For bounds and durations."""


class Entropy(Protocol):
    """Where nonces come from. A fresh one names each start of a process (DESIGN §8, rule 1)."""

    def nonce(self) -> bytes:
        """`NONCE_BYTES` bytes that were never given before."""


class TwoClocks:
    """Now by the wall clock and by monotonic time since a start, in microseconds since 1970 UTC.

    The later of the two is for what may only be done before some time: a clock that was set back gives no time back.
    The earlier is for what may only be done after some time: a clock that was set ahead cuts no wait short.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_us, self._began_s = clock.now_us(), clock.monotonic_s()

    def latest_us(self) -> int:
        return max(self._clock.now_us(), self._steady_us())

    def earliest_us(self) -> int:
        return min(self._clock.now_us(), self._steady_us())

    def _steady_us(self) -> int:
        return self._began_us + round((self._clock.monotonic_s() - self._began_s) * 1_000_000)


class SystemClock:
    """The machine's clocks."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that stands still until told. Both senses move together; thread-safe."""

    def __init__(self, now_us: int = 1_700_000_000_000_000) -> None:
        self._now_us = now_us
        self._elapsed_us = 0
        self._lock = threading.Lock()

    def now_us(self) -> int:
        with self._lock:
            return self._now_us + self._elapsed_us

    def monotonic_s(self) -> float:
        with self._lock:
            return self._elapsed_us / 1_000_000

    def advance(self, seconds: float) -> None:
        """Moves time forward. Raises ValueError below zero: monotonic time never goes back."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s; use jump_wall() for a wall clock that does")
        with self._lock:
            self._elapsed_us += round(seconds * 1_000_000)

    def jump_wall(self, seconds: float) -> None:
        """Sets the wall clock ahead or back, as an NTP step does; monotonic time does not notice."""
        with self._lock:
            self._now_us += round(seconds * 1_000_000)


class SystemEntropy:
    """The operating system's randomness."""

    def nonce(self) -> bytes:
        return secrets.token_bytes(NONCE_BYTES)


class SeededEntropy:
    """The same nonces in the same order for the same seed; for simulations and tests only."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def nonce(self) -> bytes:
        with self._lock:
            return self._random.randbytes(NONCE_BYTES)
