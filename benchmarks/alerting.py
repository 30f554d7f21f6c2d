"""An installation whose alerts are made true: three brokers, Redis, a bucket, every role, and Prometheus over them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from benchmarks import services
from scripts.alerts import rules
from tests.support.alert_views import SWITCHES
from tests.support.prometheus import Prometheus, scraping
from tests.support.s3_server import BUCKET, s3_process
from tests.support.scraped_kafka import ScrapedKafka, fetch_exporter
from tests.support.standing import Installation, Standing
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.infra.stack.kafka_libs import fetch_libs
from tracklog.infra.stack.ports import LOOPBACK, free_ports
from tracklog.infra.stack.process import wait_until
from tracklog.infra.stack.valkey_server import ValkeyServer
from tracklog.producers.producer import EventProducer
from tracklog.producers.writer import TrajectoryWriter
from tracklog.schemas.topics import Topics

VIEWS: Final = "tests.support.alert_views"
AGENTS: Final = tuple(f"{VIEWS}:{name}" for name in ("clerk", "sender", "thinker", "circler", "asker", "hurrier"))
ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "process": ("process",),
    "switched": ("process", "switched", "--load", f"{VIEWS}:Switched"),
    "worker": ("worker", *AGENTS),
    "dispatch": ("dispatch", f"{VIEWS}:mail"),
    "route": ("route",),
    "serve": ("serve",),
    "export": ("export",),
}
VALUES: Final[Mapping[str, str]] = {
    "inDoubtFor": "1s",
    "stuckFor": "1s",
    "loopingFor": "1s",
    "approvalsFor": "1s",
    "lagSeconds": "3",
    "lagFor": "1s",
    "projectionAgeSeconds": "3",
    "projectionAgeFor": "1s",
    "parkedFor": "1s",
    "quarantineWindow": "10s",
    "fenced": "0",
    "fencedWindow": "10s",
    "tamperedWindow": "10s",
    "exportLagSeconds": "5",
    "exportFor": "1s",
    "retentionLeftSeconds": "3595",
    "retentionFor": "1s",
    "isrFor": "1s",
    "pausedFor": "1s",
    "blindFor": "1s",
    "outageFor": "1s",
    "timersLateSeconds": "3",
    "timersFor": "1s",
    "goneWindow": "120s",
    "goneFor": "1s",
}
"""Of `monitoring.prometheusRule.values`: seconds in place of minutes."""
SETTINGS: Final[Mapping[str, object]] = {
    "topics.partitions": 1,
    "topics.replication_factor": 3,
    "topics.min_insync_replicas": 2,
    "worker.dispatches": True,
    "worker.grace_s": 5,
    "dispatch.grace_s": 5,
    "health.approval_overdue_s": 3,
    "health.stuck_s": 5,
    "health.sample_wait_s": 0.5,
    "cold.age_s": 1,
    "cold.timeout_s": 5,
}
PREFIX: Final = "alerts"
BOUND_S: Final = 180.0
APPEND_S: Final = 30.0


@dataclass
class Scene:
    """All of it, running. Roles can be killed and started again, at the same address."""

    folder: Path
    kafka: ScrapedKafka
    redis: ValkeyServer
    bucket: subprocess.Popen[bytes]
    cold: Mapping[str, object]
    stack: ExitStack
    roles: dict[str, Standing] = field(default_factory=dict)
    own: dict[str, ExitStack] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    prometheus: Prometheus = field(init=False)

    @property
    def topics(self) -> Topics:
        return Topics(PREFIX)

    def installation(self, role: str = "people") -> Installation:
        settings = {**SETTINGS, "api.port": self.port("api"), **(self.cold if role == "export" else {})}
        home = self.folder / ("switched" if role == "switched" else "home")
        given = {SWITCHES: str(self.folder / "switches")}
        return Installation(f"kafka://{self.kafka.bootstrap}", self.redis.url, PREFIX, home, settings, given)

    def port(self, of: str) -> int:
        if of not in self.ports:
            (self.ports[of],) = free_ports(1)
        return self.ports[of]

    def start(self, role: str, *more: str, readyz: int = 200) -> None:
        """Returns when its `/readyz` answers with this status."""
        own = self.own[role] = self.stack.enter_context(ExitStack())
        listen = f"{LOOPBACK}:{self.port(role)}"
        one = self.installation(role).standing(*ROLES[role], *more, health__listen=listen)
        self.roles[role] = own.enter_context(one)
        self.roles[role].until("/readyz", readyz)

    def stop(self, role: str) -> None:
        self.own[role].close()

    def kill(self, role: str) -> None:
        self.roles[role].process.kill()
        self.stop(role)

    def signal(self, role: str, number: signal.Signals) -> None:
        self.roles[role].process.send_signal(number)

    def say(self, *words: str) -> str:
        """A command of a person."""
        return self.installation().run(*words)

    def submit(self, agent: str) -> str:
        """A run of its own; its id."""
        self.runs += 1
        run = f"{agent}-{self.runs}"
        self.say("submit", agent, "do it", "--id", run)
        return run

    def switch(self, name: str, *, on: bool) -> None:
        place = self.folder / "switches" / name
        if on:
            place.touch()
        else:
            place.unlink(missing_ok=True)

    def until(self, query: str) -> None:
        """Until Prometheus has an answer."""
        assert wait_until(lambda: bool(self.prometheus.values(query)), BOUND_S), query

    def seen_mailing(self) -> bool:
        return (self.folder / "switches" / "mailing").exists()

    def configure(self, topic: str, name: str, value: str | None) -> None:
        """A topic's setting, by hand; None: as it was made."""
        how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value or "", incremental_operation=how)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin: Any = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(APPEND_S)

    @contextmanager
    def log(self) -> Iterator[Log]:
        log = open_log(f"kafka://{self.kafka.bootstrap}")
        try:
            yield log
        finally:
            log.close()

    def trim(self) -> None:
        """Deletes all events that are there."""
        with self.log() as log:
            topic = self.topics.events
            log.delete_records(topic, log.ends(topic, range(log.partition_count(topic))))

    def overtake(self, run: str) -> None:
        """Two owners of one run, of which the first goes on."""
        with self.log() as log:
            asyncio.run(_overtaken(log, self.topics, run))


async def _overtaken(log: Log, topics: Topics, run: str) -> None:
    from tests.support.tampering import FORGED
    from tracklog.schemas.errors import Fenced
    from tracklog.schemas.events import TaskStarted
    from tracklog.schemas.values import Body, Driver

    def producer() -> EventProducer:
        return EventProducer(log, topics=topics, clock=SystemClock(), entropy=SystemEntropy())

    async with producer() as slow, producer() as quick:
        first: TrajectoryWriter = await slow.claim(run, owner="slow", driver=Driver.LIBRARY)
        await first.append(TaskStarted(driver=Driver.LIBRARY, task=Body.of("a task"), agent="nobody"))
        await first.barrier()
        second = await quick.claim(run, owner="quick", driver=Driver.LIBRARY)
        await second.barrier()
        try:
            await first.append(FORGED)
            await first.confirm()
        except Fenced:
            return
        raise AssertionError("an owner that was overtaken was believed")


@contextmanager
def scene() -> Iterator[Scene]:
    libs = fetch_libs(services.LIBS)
    exporter = fetch_exporter(services.LIBS.parent / "jmx")
    with ExitStack() as stack:
        folder = stack.enter_context(services.scratch())
        (folder / "switches").mkdir()
        kafka = ScrapedKafka(folder / "kafka", libs, exporter, nodes=3)
        stack.callback(kafka.kill)
        kafka.start()
        redis = ValkeyServer(folder / "redis", persistence="everysec")
        stack.callback(redis.process.kill)
        redis.start()
        options, bucket = stack.enter_context(s3_process())
        cold = {"cold.url": f"s3://{BUCKET}/cold", **{f"cold.options.{name}": one for name, one in options.items()}}
        one = Scene(folder, kafka, redis, bucket, cold, stack)
        (folder / "home").mkdir()
        one.say("topics", "apply")
        for role in ROLES:
            one.start(role)
        brokers = {f"broker-{node.node_id}": node.metrics for node in kafka.scraped}
        one.prometheus = stack.enter_context(scraping(folder / "prometheus", one.roles, rules(VALUES), brokers))
        yield one
