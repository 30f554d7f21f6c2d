"""Whether a partition loop gets on: liveness that follows progress, not whether a broker answers (DESIGN §6)."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from tracklog.infra.clock import Clock


class Progress:
    """When each owned partition last got on. Written by the loop's thread, read by any.

    A partition gets on when its position moves, and when there is nothing to read. One that is behind and does
    not move is stalled, whatever its neighbours do (PostHog #65809, faust #629: a pod that is ready and reads
    nothing).
    """

    def __init__(self, clock: Clock, stall_timeout_s: float) -> None:
        self._clock = clock
        self._stall_timeout_s = stall_timeout_s
        self._lock = threading.Lock()
        self._polled_s = clock.monotonic_s()
        self._moved_s: dict[int, float] = {}

    def polled(self) -> None:
        """The loop went round."""
        self._polled_s = self._clock.monotonic_s()

    def got_on(self, partitions: Iterable[int]) -> None:
        now = self._clock.monotonic_s()
        with self._lock:
            self._moved_s.update(dict.fromkeys(partitions, now))

    def gave_up(self, partition: int) -> None:
        """The partition is no longer owned."""
        with self._lock:
            self._moved_s.pop(partition, None)

    @property
    def last_s(self) -> float:
        """Monotonic time of the last progress of the partition that is worst off; of the last poll without any."""
        with self._lock:
            return min((self._polled_s, *self._moved_s.values()))

    def stalled(self) -> list[int]:
        """Partitions that have not got on within the bound."""
        limit = self._clock.monotonic_s() - self._stall_timeout_s
        with self._lock:
            return sorted(p for p, moved in self._moved_s.items() if moved < limit)

    def alive(self) -> bool:
        """False when the loop, or one of its partitions, has not got on for `stall_timeout_s`."""
        return self._clock.monotonic_s() - self.last_s <= self._stall_timeout_s
