"""Sessions: going on with a record, cold and from a checkpoint; a very long run; what is stored, and waited for."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import orjson

from benchmarks import services
from benchmarks.measure import Measure
from benchmarks.session_process import Work
from tracklog.infra.log.open import open_log
from tracklog.schemas.topics import Topics

EVENTS_A_TURN = 5
SHORT_EVENTS = 1_000
LONG_EVENTS = 7_000
TURN_BYTES = 600
"""Of the messages of a turn, where going on is measured."""
STORED_TURNS = 400
STORED_TURN_BYTES = 2_048
MANY_TURNS = 10_000
TIMES = 3
"""How often a process goes on with a copy of the same run; the best is taken."""
PROCESS_TIMEOUT_S = 1_800.0


def process(work: Work) -> dict[str, Any]:
    """What a process of its own measured while it did this work."""
    program = [sys.executable, "-m", "benchmarks.session_process", orjson.dumps(asdict(work)).decode()]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PROCESS_TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"a process of the session benchmark failed: {done.stderr[-2000:]}")
    return dict(orjson.loads(done.stdout))


def stored_bytes(folder: str) -> int:
    """Log and blobs, as files, once the log was closed well."""
    open_log(f"sqlite:{folder}/log.db").close()
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


def events_of(folder: str) -> int:
    log = open_log(f"sqlite:{folder}/log.db")
    topic = Topics().events
    count = sum(log.bounds(topic, partition).end for partition in range(log.partition_count(topic)))
    log.close()
    return count


def going_on(folder: str, events: int, *, from_checkpoint: bool) -> float:
    """Seconds from opening a run of so many events, whose process died, to its first live model call."""
    work = Work(folder, events // EVENTS_A_TURN, TURN_BYTES, from_checkpoint, dies=True)
    process(work)
    grown = events_of(folder)
    if not events <= grown <= events * 1.05:
        raise RuntimeError(f"a run of {grown} events, wanted are {events}")
    return min(float(process(work)["opened_s"]) for _ in range(TIMES))


def measure_resume() -> list[Measure]:
    with services.scratch() as folder:
        short = going_on(f"{folder}/short", SHORT_EVENTS, from_checkpoint=False)
        long = going_on(f"{folder}/long", LONG_EVENTS, from_checkpoint=False)
        kept = going_on(f"{folder}/kept", SHORT_EVENTS, from_checkpoint=True)
        kept_long = going_on(f"{folder}/kept-long", LONG_EVENTS, from_checkpoint=True)
    return [
        Measure("resume of 1,000 events, cold", short * 1000, "ms", "at most", 200),
        Measure("resume of 7,000 events, cold", long * 1000, "ms"),
        Measure("resume of 1,000 events from a checkpoint, cold", kept * 1000, "ms", "at most", 50),
        Measure("resume of 7,000 events from a checkpoint, cold", kept_long * 1000, "ms"),
    ]


def measure_stored() -> list[Measure]:
    """What 400 turns of 2 KiB on average take on disk, and how often a turn waits for it."""
    with services.scratch() as folder:
        found = process(Work(f"{folder}/run", STORED_TURNS, STORED_TURN_BYTES))
        ratio = stored_bytes(f"{folder}/run") / found["payload_bytes"]
    return [
        Measure("400 turns of 2 KiB: bytes stored for a byte of messages", ratio, "", "at most", 2.0),
        Measure("a turn with one call: barriers", found["barriers"] / STORED_TURNS, "", "at most", 3),
    ]


def measure_many_turns() -> list[Measure]:
    """A built-in agent with compaction: killed at the end of its last turn, and brought to its end."""
    with services.scratch() as folder:
        work = Work(f"{folder}/run", MANY_TURNS, TURN_BYTES, from_checkpoint=True, compacts=True, dies=True)
        grown = process(work)
        ended = process(replace(work, dies=False))
        stored = stored_bytes(f"{folder}/run")
    return [
        Measure("10,000 turns: time", grown["working_s"], "s"),
        Measure("10,000 turns: memory", grown["peak_mb"], "MB"),
        Measure("10,000 turns: stored", stored / 1e6, "MB"),
        Measure("10,000 turns: going on from a checkpoint, cold", ended["opened_s"] * 1000, "ms"),
    ]
