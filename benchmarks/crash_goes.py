"""The crash matrix on three brokers whose leaders are killed, in goes of a few points each: what is done is kept in a
folder, a line of JSON for each go, and not done again. A go that found something wrong, or came to no end, leaves its
evidence there: what its processes said, and every record of its topics."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import services
from tests.support.brokers import leaders_killed
from tests.support.crash_matrix import CLASSES
from tests.support.dispatch_matrix import dispatched_cases, settled_cases, stop_all
from tests.support.member_matrix import PARTITIONS
from tracklog.consumers.event_json import event_map
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.schemas.codec import decode_event, decode_inbox, decode_ledger
from tracklog.schemas.topics import Topics

FOLDER: Final = Path(__file__).resolve().parent.parent / ".tracklog" / "crash-matrix"
GO_POINTS: Final = 4
"""Points of a go: a quarter of an hour on a machine that does something else beside."""
REPLICAS: Final = 3
_DECODE: Final = {"events": decode_event, "inbox": decode_inbox, "attempts": decode_ledger}


class Go(NamedTuple):
    """`stop`: the name of the signal."""

    seed: int
    stop: str
    points: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"go-{self.seed}-{self.stop}-{self.points[0]}".lower()


class Done(NamedTuple):
    """What a go came to. `broke`: why it came to no end, "" when it did. `killed`: how many brokers."""

    seed: int
    stop: str
    points: Sequence[str]
    cases: int = 0
    stops: int = 0
    killed: int = 0
    wrong: Sequence[str] = ()
    broke: str = ""
    seconds: int = 0
    commit: str = ""
    ended: str = ""

    @property
    def go(self) -> Go:
        return Go(self.seed, self.stop, tuple(self.points))


def goes(seeds: Sequence[int], stops: Sequence[str], points: Sequence[str]) -> list[Go]:
    parts = [tuple(points[n : n + GO_POINTS]) for n in range(0, len(points), GO_POINTS)]
    return [Go(seed, stop, part) for seed in seeds for part in parts for stop in stops]


def kept(folder: Path) -> list[Done]:
    """All goes that are in the folder, those that came to no end too."""
    file = folder / "goes.jsonl"
    return [Done(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


def run_goes(asked: Sequence[Go], count: int | None, folder: Path) -> Iterator[Done]:
    """Those that are not done yet, at most `count` of them, each on a cluster of its own."""
    over = {one.go for one in kept(folder) if not one.broke}
    for go in [one for one in asked if one not in over][:count]:
        done = _run(go, folder)
        with (folder / "goes.jsonl").open("a") as file:
            file.write(json.dumps(done._asdict()) + "\n")
        yield done


def table(folder: Path) -> list[str]:
    """Rows of all goes in the folder, summed for each kind of stop, and what came to no end."""
    rows, all_kept = [], kept(folder)
    for stop in dict.fromkeys(one.stop for one in all_kept):
        found = [one for one in all_kept if one.stop == stop and not one.broke]
        points, seeds = {point for one in found for point in one.points}, {one.seed for one in found}
        what = (
            f"three brokers, leaders killed: {stop} at {len(points)} points x {len(CLASSES)} classes and while others "
            f"settle, {len(seeds)} seeds ({sum(one.stops for one in found)} stops), the other goes on; "
            f"{sum(one.killed for one in found)} brokers killed in {len(found)} goes"
        )
        rows.append(f"| {what} | {sum(one.cases for one in found)} | {sum(len(one.wrong) for one in found)} |")
    broke = [
        f"\nCame to no end, and was done again: {one.go.name}, {one.broke.splitlines()[0]}"
        for one in all_kept
        if one.broke
    ]
    at = ", ".join(dict.fromkeys(one.commit for one in all_kept))
    return [*rows, *broke, f"\nAt commit {at}."]


def _run(go: Go, folder: Path) -> Done:
    began_s = time.monotonic()
    evidence = folder / go.name
    shutil.rmtree(evidence, ignore_errors=True)
    evidence.mkdir(parents=True)
    chosen = [*dispatched_cases(go.seed, go.points), *settled_cases(go.seed, go.points)]
    done = Done(*go, len(chosen), commit=_commit())
    with services.kafka_cluster() as cluster:
        log = open_log(f"kafka://{cluster.bootstrap}")
        with leaders_killed(cluster) as killed:
            stop = signal.Signals[go.stop]
            try:
                fired = asyncio.run(stop_all(log, go.name, evidence, chosen, stop, replicas=REPLICAS))
            except Exception as error:  # noqa: BLE001 - whatever ended it is what is looked into afterwards
                done = done._replace(broke=f"{type(error).__name__}: {error}")
            else:
                never = (f"never reached: {one}" for one in fired.never)
                done = done._replace(stops=fired.stops, wrong=[*fired.wrong, *never])
            done = done._replace(killed=len(killed))
            if done.wrong or done.broke:
                _copy_topics(log, go.name, evidence)
        log.close()
    if not (done.wrong or done.broke):
        shutil.rmtree(evidence)
    return done._replace(
        seconds=round(time.monotonic() - began_s), ended=datetime.now(UTC).isoformat(timespec="seconds")
    )


def _copy_topics(log: Log, prefix: str, folder: Path) -> None:
    """Every record of the topics that start so, of each of the rounds."""
    for made in sorted(folder.glob(f"{prefix}-*.said")):
        topics = Topics(made.stem)
        for kind, decode in _DECODE.items():
            with (folder / f"{made.stem}.{kind}.jsonl").open("w") as file:
                for partition in range(PARTITIONS):
                    file.writelines(_lines(log, getattr(topics, kind), partition, decode))


def _lines(log: Log, topic: str, partition: int, decode: Any) -> Iterator[str]:
    bounds = log.bounds(topic, partition)
    for record in read_range(log, topic, partition, bounds.first, bounds.end):
        yield json.dumps(event_map(decode(record.key, record.value, record.headers), record)) + "\n"


def _commit() -> str:
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=FOLDER.parents[1], capture_output=True)
    return asked.stdout.decode().strip()
