"""Whether a partition loop gets on: liveness that follows progress, not whether a broker answers (DESIGN §6)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tracklog.infra.clock import Clock


class Progress:
    """When each owned partition last got on. Written by the loop's thread, read by any.

    A partition gets on when its position moves, and when there is nothing to read. One that is behind and does
    not move is stalled, whatever its neighbours do (PostHog #65809, faust #629: a pod that is ready and reads
    nothing). While a log or a store is away nothing can move, and nothing is stalled: `outage` says what it waits for.
    """

    def __init__(self, clock: Clock, stall_timeout_s: float) -> None:
        self._clock = clock
        self._stall_timeout_s = stall_timeout_s
        self._lock = threading.Lock()
        self._polled_s = self._begun_s = clock.monotonic_s()
        self._moved_s: dict[int, float] = {}
        self._at_work: tuple[str, float] | None = None
        self.has_polled = False
        self.was_assigned = False
        """The group has said what is this member's, which may be nothing."""
        self.outage: str | None = None

    def polled(self) -> None:
        """The loop went round."""
        self._polled_s = self._clock.monotonic_s()
        self.has_polled = True

    def assigned(self) -> None:
        self.was_assigned = True

    def waits(self, outage: str | None) -> None:
        """Something outside is away, and was asked again just now; None: it is back."""
        now = self._clock.monotonic_s()
        with self._lock:
            self.outage = outage
            self._polled_s = now
            self._moved_s = dict.fromkeys(self._moved_s, now)
            if self._at_work is not None:
                self._at_work = (self._at_work[0], now)

    @contextmanager
    def at_work(self, what: str) -> Iterator[None]:
        """Something is done that holds up everything else: the partitions count up to when it began, and it may itself
        not take longer than the bound."""
        outer = self._at_work
        self._at_work = (what, self._clock.monotonic_s())
        try:
            yield
        finally:
            self._at_work = outer

    def got_on(self, partitions: Iterable[int]) -> None:
        now = self._clock.monotonic_s()
        with self._lock:
            self._moved_s.update(dict.fromkeys(partitions, now))

    def gave_up(self, partition: int) -> None:
        """The partition is no longer owned."""
        with self._lock:
            self._moved_s.pop(partition, None)

    @property
    def age_s(self) -> float:
        """Seconds since the loop last went round."""
        return max(0.0, self._clock.monotonic_s() - self._polled_s)

    @property
    def running_s(self) -> float:
        return self._clock.monotonic_s() - self._begun_s

    def stalled(self) -> list[int]:
        """Partitions that have not got on within the bound."""
        limit = self._until_s() - self._stall_timeout_s
        with self._lock:
            return sorted(p for p, moved in self._moved_s.items() if moved < limit)

    def alive(self) -> bool:
        """False when the loop, or one of its partitions, has not got on for `stall_timeout_s`."""
        return self.problem() is None

    def problem(self) -> str | None:
        """Why it is not alive, naming the partition that holds it up; None while it is."""
        now, at_work, bound_s = self._clock.monotonic_s(), self._at_work, self._stall_timeout_s
        if at_work is not None and now - at_work[1] > bound_s:
            return f"{at_work[0]} has not ended for {now - at_work[1]:.0f} s"
        if self._until_s() - self._polled_s > bound_s:
            return f"the loop has not gone round for {self.age_s:.0f} s"
        stalled = self.stalled()
        return f"behind and not moving for {bound_s:g} s: partitions {_listed(stalled)}" if stalled else None

    def _until_s(self) -> float:
        at_work = self._at_work
        return self._clock.monotonic_s() if at_work is None else at_work[1]


def _listed(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, partitions))
