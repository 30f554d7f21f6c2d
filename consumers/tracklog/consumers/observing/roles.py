"""What each role shows of itself. Nothing is switched on where nobody is to be shown anything (`seen` None)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tracklog.consumers.dispatch.dispatcher import Dispatcher
from tracklog.consumers.observing.agenda import agenda_samples
from tracklog.consumers.observing.records import RecordCounts
from tracklog.consumers.observing.role import Observed
from tracklog.consumers.observing.views import ViewSamples
from tracklog.consumers.routing.router import Router
from tracklog.consumers.webhooks.announcer import Announcer
from tracklog.infra.metrics import Sample
from tracklog.infra.redis_client import RedisClient
from tracklog.processors.agenda import TrajectoryAgenda
from tracklog.processors.running import Processes, Running
from tracklog.producers.producer import EventProducer
from tracklog.producers.worker import Worker

if TYPE_CHECKING:
    from tracklog.consumers.export.running import Export

__all__ = ["of_dispatcher", "of_exporter", "of_processes", "of_router", "of_worker"]


def of_processes(seen: Observed | None, work: Processes, client: RedisClient, prefix: str) -> None:
    if seen is None:
        return
    clock, settings, views = seen.clock, seen.settings, ViewSamples(client, prefix)
    seen.follow(work.loop, work.name, projects=True)
    if work.trajectories is not None:
        counts = RecordCounts(seen.metrics, clock, settings.counted_age_s_max)
        work.trajectories.told, work.bundle.on_poison = counts, counts.quarantined

    def now() -> Iterator[Sample]:
        return views.all(work.names, sorted(work.loop.positions), clock.now_us() // 1000, settings.stuck_s)

    seen.sampled("redis", now, kept=True)


def of_worker(seen: Observed | None, worker: Worker, producer: EventProducer) -> None:
    """On its event loop."""
    if seen is None:
        return
    metrics = seen.metrics
    seen.follow(worker.partition_loop, "worker")
    seen.beat(lambda: f"; {worker.running} trajectories of partitions {_listed(worker.partitions)} are worked on")
    seen.sampled("process", lambda: _worker_now(worker))
    producer.on_barrier = lambda seconds: metrics.observe("tracklog_barrier_seconds", seconds)


def of_dispatcher(seen: Observed | None, dispatcher: Dispatcher) -> None:
    """On its event loop."""
    if seen is None:
        return
    seen.follow(dispatcher.partition_loop, "dispatch")
    seen.beat(lambda: f"; {dispatcher.open_calls} calls of partitions {_listed(dispatcher.partitions)} are open")
    seen.sampled("process", lambda: _dispatcher_now(dispatcher))


def of_router(
    seen: Observed | None,
    router: Router,
    agenda: Running[TrajectoryAgenda],
    announcer: Announcer | None,
    client: RedisClient,
) -> None:
    """On its event loop."""
    if seen is None:
        return
    clock, overdue_s = seen.clock, seen.settings.approval_overdue_s
    seen.follow(agenda.loop, "route")
    seen.beat()
    seen.sampled("process", lambda: _router_now(router, announcer))
    seen.sampled("redis", lambda: agenda_samples(client, agenda, clock.now_us() // 1000, overdue_s), kept=True)


def of_exporter(seen: Observed | None, work: Export) -> None:
    """Its lag is how far the table is behind the log: what it has read and not committed counts as behind."""
    if seen is None:
        return
    seen.follow(work.loop, "export")
    seen.sampled("process", lambda: _exporter_now(work))
    seen.sampled("log", lambda: _gap_now(work), kept=True)


def _exporter_now(work: Export) -> Iterator[Sample]:
    told = work.told
    yield Sample("tracklog_exported_total", told.events, {"kind": "events"})
    yield Sample("tracklog_exported_total", told.undecodable, {"kind": "undecodable"})
    yield Sample("tracklog_export_commits_total", told.commits)
    yield Sample("tracklog_export_conflicts_total", told.conflicts)
    yield Sample("tracklog_export_rows_waiting", work.exporter.rows)
    yield Sample("tracklog_export_durable_seconds", told.durable_s)
    yield Sample("tracklog_export_blobs_lost_total", work.blobs.lost)


def _gap_now(work: Export) -> Iterator[Sample]:
    for partition, offsets in work.gap().items():
        yield Sample("tracklog_export_gap_offsets", offsets, {"partition": str(partition)})


def _worker_now(worker: Worker) -> Iterator[Sample]:
    yield Sample("tracklog_worker_runnable", worker.roster.backlog)
    yield Sample("tracklog_worker_running", worker.running)
    yield Sample("tracklog_worker_running_max", worker.running_max)
    yield Sample("tracklog_worker_known", len(worker.roster))


def _dispatcher_now(dispatcher: Dispatcher) -> Iterator[Sample]:
    paused = dispatcher.tools_paused
    yield Sample("tracklog_dispatch_calls_open", dispatcher.open_calls)
    yield Sample("tracklog_dispatch_slots", dispatcher.ledger_slots)
    yield Sample("tracklog_dispatch_pauses_known", paused is not None)
    if paused is not None:
        yield Sample("tracklog_dispatch_tools_paused", paused)


def _router_now(router: Router, announcer: Announcer | None) -> Iterator[Sample]:
    for kind, count in router.counts._asdict().items():
        yield Sample("tracklog_routed_total", count, {"kind": kind})
    if announcer is None:
        return
    yield Sample("tracklog_webhooks_total", announcer.told, {"result": "taken"})
    yield Sample("tracklog_webhooks_total", announcer.given_up, {"result": "given up"})
    yield Sample("tracklog_webhooks_telling", announcer.telling)


def _listed(partitions: frozenset[int] | set[int]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"
