"""Members of the processors' group that come and go for three minutes under load, on both group protocols."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks import services
from benchmarks.measure import Measure
from tests.support.brokers import leaders_killed
from tests.support.processing_churn import Churned, ProcessingChurn

SECONDS = float(os.environ.get("CHURN_SECONDS", "180"))
EVERY_S = 3.0


def measure_churn() -> list[Measure]:
    found: list[Measure] = []
    with services.kafka() as bootstrap, services.valkey() as redis_url:
        for protocol in ("classic", "consumer"):
            with churning(bootstrap, redis_url, protocol) as churn:
                churn.run(SECONDS, EVERY_S)
                found += _shown(protocol, churn.judged())
    return found


def measure_churn_of_brokers() -> list[Measure]:
    """The same while the leaders among three brokers are killed."""
    with (
        services.kafka_cluster() as cluster,
        services.valkey() as redis_url,
        churning(cluster.bootstrap, redis_url, "consumer", replicas=3) as churn,
    ):
        with leaders_killed(cluster) as killed:
            churn.run(SECONDS, EVERY_S)
        found = _shown("consumer, leaders killed", churn.judged())
    return [*found, Measure("consumer, leaders killed: brokers killed", len(killed), "", "at least", 3)]


@contextmanager
def churning(bootstrap: str, redis_url: str, protocol: str, replicas: int = 1) -> Iterator[ProcessingChurn]:
    with services.scratch() as folder:
        log_url, prefix = f"kafka://{bootstrap}", f"churn-{protocol}"
        churn = ProcessingChurn(log_url, redis_url, prefix, protocol, folder, seed=1, replicas=replicas)
        try:
            yield churn
        finally:
            churn.close()


def _shown(name: str, one: Churned) -> list[Measure]:
    return [
        Measure(f"{name}: members that came or left", one.moves, "", "at least", SECONDS / EVERY_S / 2),
        Measure(f"{name}: of which killed", one.killed, ""),
        Measure(f"{name}: ended because no broker answered, and were replaced", one.gave_up, ""),
        Measure(f"{name}: events appended meanwhile", one.events, ""),
        Measure(f"{name}: events that the counters have", one.counted, "", "at least", one.events),
        Measure(f"{name}: more than that", max(0, one.counted - one.events), "", "at most", 0),
        Measure(f"{name}: processors that differ from a fresh fold", len(one.wrong), "", "at most", 0),
    ]
