"""Ten thousand calls that wait for a person: what a page of them costs, and the router that has them."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks import services
from benchmarks.measure import Measure, milliseconds_p50
from tests.support.many_held import TENANTS, fill_held
from tracklog.consumers.read import Answer, Reader
from tracklog.consumers.routing.router import Router
from tracklog.consumers.waiting import WaitingPage
from tracklog.consumers.wiring import agenda_of
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.infra.settings_sections import Settings
from tracklog.processors.agenda import ASKED
from tracklog.schemas.topics import Topics

OPEN = 10_000
PAGE = 50
TIMES = 100
EXPIRED_S_MAX = 600.0


def measure_waiting() -> list[Measure]:
    """Pages from the beginning, from the middle and of one tenant; then all of them expire at once."""
    with services.scratch() as folder, services.valkey() as url:
        log, client = open_log(f"sqlite:{folder}/log.db"), connect(url, timeout_s=5.0)
        try:
            return asyncio.run(_measured(log, client))
        finally:
            client.close()
            log.close()


async def _measured(log: Log, client: RedisClient) -> list[Measure]:
    settings, clock = Settings(), SystemClock()
    log.create(settings.topic_specs())
    now_us = clock.now_us()
    fill_held(log, OPEN, expires_us=now_us + 1, now_us=now_us)
    agenda = agenda_of(settings, log, client)
    started = time.perf_counter()
    partitions = agenda.loop.drain()
    folded_s = time.perf_counter() - started
    reader = Reader(client, prefix=settings.prefix)
    middle = (await reader.waiting(ASKED, limit=OPEN // 2)).value.next
    pages = {
        "the first page": lambda: reader.waiting(ASKED, limit=PAGE),
        "a page in the middle": lambda: reader.waiting(ASKED, cursor=middle, limit=PAGE),
        "a page of one tenant": lambda: reader.waiting(ASKED, tenant=TENANTS[0], limit=PAGE),
    }
    measures = [Measure(f"{OPEN:,} open approvals: folded in", folded_s, "s")]
    measures += [
        Measure(f"... {name}, {PAGE} rows", await _p50_ms(page), "ms", "at most", 10) for name, page in pages.items()
    ]
    gc.collect()
    before_mb, started = _resident_mb(), time.perf_counter()
    router = Router(log, Topics(), client, agenda, clock=clock)
    while router.counts.expiries < OPEN and time.perf_counter() - started < EXPIRED_S_MAX:
        await router.look(partitions)
    took_s = time.perf_counter() - started
    gc.collect()
    return [
        *measures,
        Measure("... all expired: said in", took_s, "s"),
        Measure("... said of them", router.counts.expiries, "requests", "at least", OPEN),
        Measure("... more memory of the router after it", _resident_mb() - before_mb, "MB", "at most", 30),
    ]


async def _p50_ms(page: Callable[[], Awaitable[Answer[WaitingPage]]]) -> float:
    took = list[float]()
    for _ in range(TIMES):
        started = time.perf_counter()
        found = (await page()).value
        took.append(time.perf_counter() - started)
        if len(found.rows) != PAGE or found.next is None:
            raise RuntimeError(f"a page of {len(found.rows)} rows")
    return milliseconds_p50(took)


def _resident_mb() -> float:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024
