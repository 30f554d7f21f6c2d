"""`python -m benchmarks.cold`: exporters killed all the time, in twos and threes, and every event there exactly once.

A real broker gets the recorded airline runs again and again, until there are so many events. Exporters that all own all
partitions are started two and three at a time and killed at random; the last ones may finish. Then every
(topic id, partition, offset) is there once, `cold verify` has nothing to say, and the rows, read through Delta, are as
many as Kafka's own consumer counts. Exits 1 when anything is wrong, and prints it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
from confluent_kafka import Consumer, TopicPartition

from benchmarks import results, services
from benchmarks.cold_log import fill
from tests.support.s3_server import s3_server
from tracklog.consumers.cold.verify import verification_of
from tracklog.consumers.export.running import export_of
from tracklog.infra.clock import SeededEntropy, SystemClock, SystemEntropy
from tracklog.infra.cold.table import open_events
from tracklog.infra.cold.upkeep import compact
from tracklog.infra.log.open import open_log
from tracklog.infra.settings import Settings

COMMAND = "make bench-cold"
STORES = ("disk", "s3")
LIFE_S_MIN, LIFE_S_MAX = 0.3, 3.0
"""How long an exporter lives before it is killed: some die while they open the table, some in a commit."""
ROWS_MAX = 4_000
FINISH_S = 600.0


class Killed(NamedTuple):
    store: str
    events: int
    kills: int
    rows: int
    twice: int
    faults: list[str]
    kafka: int
    commits: int
    seconds: float
    stored_ratio: float
    merged_mb: list[float]
    """Sizes of the files after compaction, the largest first."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", choices=STORES, action="append", help="default: both")
    parser.add_argument("--no-keep", action="store_true", help="keeps no result")
    given = parser.parse_args()
    found = []
    with services.kafka() as bootstrap, services.scratch() as folder:
        settings = _settings(f"kafka://{bootstrap}", folder / "disk", {})
        log = open_log(settings.log.url)
        events = fill(log, settings, given.events)
        log.close()
        print(f"{events} events in the log", flush=True)
        for store in given.store or STORES:
            with _place(store, folder) as (url, options):
                one = run(store, _settings(settings.log.url, url, options), events, given.kills, given.seed)
            print(one, flush=True)
            found.append(one)
    wrong = [one for one in found if one.twice or one.faults or not one.rows == one.kafka == one.events]
    if not given.no_keep:
        results.keep(COMMAND, page(given.seed, found))
    return 1 if wrong else 0


@contextmanager
def _place(store: str, folder: Path) -> Iterator[tuple[Path | str, Mapping[str, str]]]:
    with s3_server() if store == "s3" else nullcontext(None) as options:
        yield (folder / "cold", {}) if options is None else ("s3://bucket/cold", options)


def _settings(log: str, cold: Path | str, options: Mapping[str, str]) -> Settings:
    return Settings.model_validate(
        {
            "prefix": "bench",
            "log": {"url": log},
            "topics": {"replication_factor": 1, "min_insync_replicas": 1},
            "cold": {"url": str(cold), "options": options, "rows_max": ROWS_MAX, "blobs": "check"},
        }
    )


def export_all(given: dict[str, Any]) -> None:
    """One exporter, in a process of its own: all partitions, up to their ends."""
    settings = _settings(**given)
    log = open_log(settings.log.url)
    export_of(log, settings, clock=SystemClock(), entropy=SystemEntropy()).loop.drain()
    log.close()


def run(store: str, settings: Settings, events: int, kills: int, seed: int) -> Killed:
    begun = time.perf_counter()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.cold"])
    given = {
        "log": settings.log.url,
        "cold": settings.cold.url,
        "options": settings.cold.store_options(),
    }
    made = _killed(context, given, kills, SeededEntropy(seed))
    last = [_started(context, given) for _ in range(2)]
    for process in last:
        process.join(FINISH_S)
        process.kill()
    seconds = time.perf_counter() - begun
    return _judged(store, settings, events, made, seconds)


def _started(context: ForkServerContext, given: dict[str, Any]) -> ForkServerProcess:
    process = context.Process(target=export_all, args=(given,), daemon=True)
    process.start()
    return process


def _killed(context: ForkServerContext, given: dict[str, Any], kills: int, entropy: SeededEntropy) -> int:
    """Two, then three, then two... at once; returns how many were killed while they ran."""
    made = rounds = 0
    while made < kills:
        rounds += 1
        processes = [_started(context, given) for _ in range(2 + rounds % 2)]
        for process in processes:
            drawn = int.from_bytes(entropy.nonce()[:4], "big") / 2**32
            threading.Event().wait((LIFE_S_MIN + drawn * (LIFE_S_MAX - LIFE_S_MIN)) / len(processes))
            if process.is_alive():
                process.kill()
                made += 1
            process.join()
        if rounds > kills:
            break
    return made


def _judged(store: str, settings: Settings, events: int, kills: int, seconds: float) -> Killed:
    cold = settings.cold
    table = open_events(cold.url, cold.store_options())
    stored = sum(file.size_bytes for file in table.files())
    dataset = table.handle.to_pyarrow_dataset()
    places = dataset.to_table(columns=["topic_id", "partition", "offset"])
    counted = places.group_by(["topic_id", "partition", "offset"]).aggregate([([], "count_all")])
    twice = pc.sum(pc.greater(counted["count_all"], 1)).as_py() or 0
    raw = sum(pc.sum(pc.binary_length(batch["payload"])).as_py() or 0 for batch in dataset.to_batches(["payload"]))
    compact(table, SystemClock().now_us())
    merged_mb = sorted((file.size_bytes / 1e6 for file in table.files()), reverse=True)
    checked = verification_of(settings, blobs=False)
    faults = [str(fault) for report in checked.histories.reports() for fault in report.faults]
    faults += [str(fault) for fault in checked.log.faults]
    ratio = stored / raw if raw else 0.0
    rows = places.num_rows
    kafka = _kafka_count(settings)
    return Killed(store, events, kills, rows, twice, faults[:20], kafka, table.version, seconds, ratio, merged_mb)


def _kafka_count(settings: Settings) -> int:
    """What a consumer that knows nothing of Tracklog gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": settings.log.url.removeprefix("kafka://"),
            "group.id": "count",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    topic = settings.topic_names.events
    consumer.assign([TopicPartition(topic, p, 0) for p in range(settings.topics.partitions)])
    count = ended = 0
    while ended < settings.topics.partitions:
        for message in consumer.consume(10_000, 30.0):
            if message.error() is None:
                count += 1
            else:
                ended += 1
    consumer.close()
    return count


def page(seed: int, found: list[Killed]) -> str:
    head = (
        f"Exporters started in twos and threes, each with all partitions, killed at random (SIGKILL, seed {seed}).\n"
        "\n| store | events in the log | kills | rows | rows there twice | Kafka's count | faults of verify |"
        " versions | seconds | stored bytes of raw Avro | files after compaction, MB |\n"
        "| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |"
    )
    rows = [
        f"| {one.store} | {one.events:,} | {one.kills} | {one.rows:,} | {one.twice} | {one.kafka:,} |"
        f" {len(one.faults)} | {one.commits} | {one.seconds:.0f} | {one.stored_ratio:.0%} |"
        f" {', '.join(f'{mb:.0f}' for mb in one.merged_mb[:8])} |"
        for one in found
    ]
    return "\n".join([head, *rows])


if __name__ == "__main__":
    sys.exit(main())
