"""A process that folds with all processors, to come and go: LOG_URL REDIS_URL PREFIX PROTOCOL [MODULE:CLASS].

Follows the log as a member of the group under the group protocol that is named, until it is told to end.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

from tests.support.projecting import PARTITIONS
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.open import open_log
from tracklog.infra.redis_client import connect
from tracklog.infra.settings_sections import LoopSettings, Settings
from tracklog.processors.loading import BUILTIN, load_processor
from tracklog.processors.processor import Processor
from tracklog.processors.running import processes
from tracklog.schemas.errors import LogUnavailable

SMALL: LoopSettings = LoopSettings(batch_records_max=200, batch_wait_s=0.01, poll_timeout_s=0.05)
SESSION_MS = "6000"


def kafka_options(protocol: str) -> dict[str, str]:
    return {"group.protocol": protocol, **({"session.timeout.ms": SESSION_MS} if protocol == "classic" else {})}


def settings_of(prefix: str, replicas: int = 1) -> Settings:
    few = {"replication_factor": replicas, "min_insync_replicas": 2 if replicas > 2 else 1}
    topics = {"partitions": PARTITIONS, **few}
    return Settings.model_validate({"prefix": prefix, "topics": topics, "loop": SMALL})


def main() -> None:
    log_url, redis_url, prefix, protocol, *loaded = sys.argv[1:]
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    made: list[Processor[Any]] = [load_processor(one) for one in loaded] or [kind() for kind in BUILTIN]
    log = open_log(log_url, kafka_options=kafka_options(protocol) if protocol else None)
    client = connect(redis_url, timeout_s=5)
    try:
        work = processes(
            made, log, client, settings_of(prefix), clock=SystemClock(), entropy=SystemEntropy(), builtin=not loaded
        )
        work.loop.run(work.group, stop)
    except LogUnavailable as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    log.close()
    client.close()


if __name__ == "__main__":
    main()
