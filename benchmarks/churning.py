"""Members of the processors' group that come and go for three minutes under load, on both group protocols."""

from __future__ import annotations

import os

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
            found += _shown(protocol, churned(bootstrap, redis_url, protocol))
    with services.kafka_cluster() as cluster, services.valkey() as redis_url, leaders_killed(cluster) as killed:
        found += _shown("consumer, leaders killed", churned(cluster.bootstrap, redis_url, "consumer", replicas=3))
        found.append(Measure("consumer, leaders killed: brokers killed", len(killed), "", "at least", 3))
    return found


def churned(bootstrap: str, redis_url: str, protocol: str, replicas: int = 1) -> Churned:
    with services.scratch() as folder:
        log_url, prefix = f"kafka://{bootstrap}", f"churn-{protocol}"
        churn = ProcessingChurn(log_url, redis_url, prefix, protocol, folder, seed=1, replicas=replicas)
        try:
            return churn.run(SECONDS, EVERY_S)
        finally:
            churn.close()


def _shown(name: str, one: Churned) -> list[Measure]:
    return [
        Measure(f"{name}: members that came or left", one.moves, "", "at least", SECONDS / EVERY_S / 2),
        Measure(f"{name}: of which killed", one.killed, ""),
        Measure(f"{name}: events appended meanwhile", one.events, ""),
        Measure(f"{name}: events that the counters have", one.counted, "", "at least", one.events),
        Measure(f"{name}: more than that", max(0, one.counted - one.events), "", "at most", 0),
        Measure(f"{name}: processors that differ from a fresh fold", len(one.wrong), "", "at most", 0),
    ]
