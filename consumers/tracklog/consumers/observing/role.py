"""A standing role as others see it: its health, its metrics, and the small server that shows both (DESIGN §12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

import orjson

from tracklog.consumers.observing.loops import Retention, loop_samples
from tracklog.infra.clock import Clock, SystemClock
from tracklog.infra.health import Health
from tracklog.infra.health_server import Answer, answering
from tracklog.infra.log.port import Log
from tracklog.infra.metrics import CONTENT_TYPE, Metrics, Sample, Sampler
from tracklog.infra.partition_loop import PartitionLoop
from tracklog.infra.redis_client import RedisClient, store_errors
from tracklog.infra.settings import Settings

__all__ = ["Observed", "observed"]

_JSON: Final = "application/json"


class Observed:
    """One process, made by `observed`. `log` and `client` are those that it cannot work without."""

    def __init__(
        self,
        role: str,
        settings: Settings,
        log: Log,
        client: RedisClient | None,
        clock: Clock,
        health: Health | None = None,
    ) -> None:
        self.role = role
        self.clock = clock
        self.settings = settings.health
        self.health: Final = Health(settings.health, clock) if health is None else health
        self.metrics: Final = Metrics(clock, sample_s=settings.health.sample_s, wait_s=settings.health.sample_wait_s)
        self.log = log
        self._retention = Retention(log, clock)
        if client is not None:
            self.health.needs(lambda: _pinged(client))
        if health is None:
            self.health.needs(self._log_answers)
        self.metrics.sampled("process", self._info)

    def follow(self, loop: PartitionLoop, processor: str, *, projects: bool = False) -> None:
        """A partition loop of this process. `processor`: what its metrics are called by. `projects`: what it folds is
        what people look at."""
        self.health.follow(loop)
        self.metrics.sampled("process", lambda: _loop_now(loop, processor))
        self.metrics.sampled("log", lambda: self._behind(loop, processor, projects), kept=True)

    def beat(self, about: Callable[[], str] = lambda: "") -> None:
        """The event loop that runs now; see `Health.beat`."""
        self.health.beat(about)

    def sampled(self, source: str, sampler: Sampler, *, kept: bool = False) -> None:
        """See `Metrics.sampled`."""
        self.metrics.sampled(source, sampler, kept=kept)

    def _behind(self, loop: PartitionLoop, processor: str, projects: bool) -> Iterator[Sample]:
        self._log_answers()
        samples = list(loop_samples(self.log, loop, processor, self.clock, self._retention))
        yield from samples
        if projects:
            ages = [one.value for one in samples if one.name == "tracklog_lag_seconds"]
            yield Sample("tracklog_projection_age_seconds", max(ages, default=0.0), {"processor": processor})

    def _log_answers(self) -> None:
        self.log.ping(self.settings.ping_timeout_s)

    def _info(self) -> Iterator[Sample]:
        yield Sample("tracklog_info", 1, {"role": self.role, "version": version("tracklog")})


@contextmanager
def observed(
    role: str,
    settings: Settings,
    log: Log,
    client: RedisClient | None = None,
    *,
    told: Callable[[str], None],
    health: Health | None = None,
) -> Iterator[Observed | None]:
    """Serves `/healthz`, `/readyz` and `/metrics` while the block lasts; None where `health.listen` is empty.

    `health`: one that already asks for the log. Raises SettingsError for an address that cannot be listened at.
    """
    if not settings.health.listen:
        yield None
        return
    seen = Observed(role, settings, log, client, SystemClock(), health)
    answers = {
        "/healthz": lambda: _answer("alive", seen.health.why_dead()),
        "/readyz": lambda: _answer("ready", seen.health.why_not_ready()),
        "/metrics": lambda: Answer(200, CONTENT_TYPE, seen.metrics.text()),
    }
    with answering(settings.health.listen, answers) as address:
        told(f"health and metrics at http://{address}")
        yield seen


def _answer(word: str, problems: list[str]) -> Answer:
    said = {"status": f"not {word}" if problems else word, "problems": problems}
    return Answer(503 if problems else 200, _JSON, orjson.dumps(said) + b"\n")


def _pinged(client: RedisClient) -> None:
    with store_errors(client):
        client.ping()


def _loop_now(loop: PartitionLoop, processor: str) -> Iterator[Sample]:
    of = {"processor": processor}
    yield Sample("tracklog_partitions_owned", len(loop.positions), {"topic": loop.topic, **of})
    yield Sample("tracklog_outage", loop.progress.outage is not None, of)
    yield Sample("tracklog_poll_age_seconds", loop.progress.age_s, of)
    for partition, offsets in dict(loop.trimmed).items():
        where = {"topic": loop.topic, "partition": str(partition), **of}
        yield Sample("tracklog_skipped_offsets_total", offsets, where)
