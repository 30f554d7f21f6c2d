"""By how much what Redis shows of the trajectories is behind the log."""

from __future__ import annotations

from tracklog.consumers.read_live import Pinned, all_of, checkpoints, found_live, positions_of
from tracklog.infra.clock import Clock
from tracklog.infra.log.lag import lags
from tracklog.infra.log.port import Log
from tracklog.infra.redis_client import RedisClient
from tracklog.processors.trajectories import NAME
from tracklog.schemas.topics import Topics

__all__ = ["ProjectionAge"]


class ProjectionAge:
    def __init__(self, log: Log, client: RedisClient, topics: Topics, clock: Clock) -> None:
        self._log = log
        self._client = client
        self._topics = topics
        self._clock = clock

    def seconds(self) -> float:
        """Age of the oldest record that is not folded, of all partitions; 0 without any.

        Raises LogUnavailable, StoreUnavailable, StoreError when nothing was ever folded.
        """
        live = found_live(self._client, self._topics.prefix, Pinned(NAME))
        positions = positions_of(checkpoints(self._client, live.keys, all_of(live)))
        behind = lags(self._log, self._topics.events, positions, self._clock)
        now_us = self._clock.now_us()
        return max((age for lag in behind.values() if (age := lag.seconds(now_us)) is not None), default=0.0)

    def problem(self, age_s_max: float) -> str | None:
        """What is wrong with it, in words. Raises as `seconds`."""
        age_s = self.seconds()
        if age_s <= age_s_max:
            return None
        return f"what Redis shows is {age_s:.0f} s behind the log: is `tracklog process` running?"
