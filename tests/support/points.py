"""Named points of a turn at which a process stops dead: kills itself, or freezes.

`ToolIntent.append` is before the append, `.sent` right after it, `.stored` when its report comes; `intent.unread` and
`intent.read` are around its read-back, `effect.start` and `effect.end` around the request to the service that counts
effects, `snapshot.store` and `snapshot.stored` around what a checkpoint puts into the blob store.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracklog.infra.log.port import Delivered, Headers, Log, Position
from tracklog.producers import checkpoints
from tracklog.producers.producer import EventProducer
from tracklog.producers.track import Track
from tracklog.schemas.errors import AppendError

THEN = ".then"
STAGES = ("append", "sent", "stored")
EVENTS = ("ContextBuilt", "ModelReplied", "Authorized", "ToolIntent", "ToolResult", "CheckpointTaken", "TaskEnded")
POINTS = (
    *(f"{name}.{stage}" for name in EVENTS for stage in STAGES),
    "intent.unread",
    "intent.read",
    "effect.start",
    "effect.end",
    "snapshot.store",
    "snapshot.stored",
)


@dataclass(frozen=True)
class Armed:
    """`occurrence` counts from 1; `pause_s` is spent at the point before it stops. `then`: the point at which whoever
    passes it next after that stops, too."""

    point: str
    occurrence: int
    pause_s: float
    signal: int
    then: str | None = None


class Points:
    """`armed` by trajectory. `passed`: a folder where processes that follow one another count together."""

    def __init__(self, armed: Mapping[str, Armed], passed: Path | None = None) -> None:
        self._armed = armed
        self._folder = passed
        self._passed: Counter[str] = Counter()
        self.intent_open: dict[str, bool] = {}

    def at(self, trajectory_id: str, point: str) -> None:
        armed = self._armed.get(trajectory_id)
        if armed is None or point not in (armed.point, armed.then):
            return
        if point == armed.then and self.passed(trajectory_id) >= armed.occurrence:
            stops = self._count(f"{trajectory_id}{THEN}") == 1
        else:
            stops = point == armed.point and self._count(trajectory_id) == armed.occurrence
        if stops:
            threading.Event().wait(armed.pause_s)  # where after the point it stops
            os.kill(os.getpid(), armed.signal)

    def passed(self, name: str) -> int:
        """How often the point of a trajectory was passed; of NAME + THEN, its second one."""
        if self._folder is None:
            return self._passed[name]
        file = self._folder / name
        return file.stat().st_size if file.exists() else 0

    def _count(self, name: str) -> int:
        if self._folder is None:
            self._passed[name] += 1
            return self._passed[name]
        with (self._folder / name).open("ab", buffering=0) as file:
            file.write(b".")
            return file.tell()


def watch_appends(log: Log, points: Points) -> None:
    """Puts the points around the appends of this process, to whichever topic."""
    append = log.append

    def watched(topic: str, key: bytes, value: bytes, headers: Headers, delivered: Delivered) -> None:
        name, trajectory_id = dict(headers)["tl-type"].decode(), key.decode()

        def reported(position: Position | None, error: AppendError | None) -> None:
            if position is not None:
                points.at(trajectory_id, f"{name}.stored")
            delivered(position, error)

        points.at(trajectory_id, f"{name}.append")
        append(topic, key, value, headers, reported)
        points.intent_open[trajectory_id] = name == "ToolIntent"
        points.at(trajectory_id, f"{name}.sent")

    log.append = watched  # type: ignore[method-assign]


def watch(log: Log, producer: EventProducer, points: Points) -> None:
    """Puts the points around appends, read-backs and snapshots of this process."""
    watch_appends(log, points)
    track_of, store = producer.track_of, vars(checkpoints)["store_snapshot"]

    async def read_back(trajectory_id: str) -> Track:
        of_intent = points.intent_open.get(trajectory_id, False)
        if of_intent:
            points.at(trajectory_id, "intent.unread")
        track = await track_of(trajectory_id)
        if of_intent:
            points.at(trajectory_id, "intent.read")
        return track

    def stored(*arguments: Any) -> Any:
        trajectory_id = arguments[1].trajectory_id
        points.at(trajectory_id, "snapshot.store")
        ref = store(*arguments)
        points.at(trajectory_id, "snapshot.stored")
        return ref

    producer.track_of = read_back  # type: ignore[method-assign]
    vars(checkpoints)["store_snapshot"] = stored
