"""Finished trajectories with their audit, read from any log: a scan to audit them, and one for each batch to read.

One whose history holds a fault does not get to its end by folding. It is a finished one all the same where a record of
it says that it has ended: it comes with what can be known of it, and is not verified.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from tracklog.consumers.turns import Turns
from tracklog.consumers.verify import Verification
from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.port import Log, Record, TopicInfo
from tracklog.producers.history import Accepted, read_histories
from tracklog.producers.lineage import read_inherited
from tracklog.schemas import events as ev
from tracklog.schemas.audit_report import Report
from tracklog.schemas.catalog import HEADER_TYPE
from tracklog.schemas.codec import Event
from tracklog.schemas.state import State
from tracklog.schemas.values import Driver, TargetKind

__all__ = ["NO_BEGINNING", "SAMPLE", "Finished", "finished"]

BATCH: Final = 200
"""Trajectories that are in memory at a time."""
UNKNOWN: Final = "unknown"
"""The outcome of one whose history does not hold up to its end."""
NO_BEGINNING: Final = "a trajectory with a fault that leaves nothing of its beginning"
_ENDED: Final = (HEADER_TYPE, ev.TaskEnded.__name__.encode())


class Finished:
    """One trajectory that has ended. `state` and `own` go as far as its history holds."""

    def __init__(self, log: Log, info: TopicInfo, blobs: BlobStore, report: Report, state: State, own: list[Accepted]):
        self._log = log
        self._blobs = blobs
        self.info = info
        self.report = report
        self.state = state
        self.own: list[Event] = [event for event, _ in own]
        self.positions = {event.envelope.seq: position for event, position in own}
        self.started = next(event.body for event in self.own if isinstance(event.body, ev.TaskStarted))

    @property
    def trajectory_id(self) -> str:
        return self.state.trajectory_id

    @cached_property
    def turns(self) -> Turns:
        """With what it inherits. Blocks. Raises InputError for an origin that is not there, BlobError."""
        inherited = read_inherited(self._log, self.info.spec.name, self.own)
        return Turns(self.trajectory_id, inherited, self.own, self._blobs)

    @property
    def kind(self) -> str:
        """Where it comes from: `fork`, `import`, `ingest`, `child` or `run`."""
        if self.started.origin is not None:
            return "fork"
        if self.started.driver in (Driver.IMPORT, Driver.INGEST):
            return self.started.driver.value
        return "child" if self.started.parent is not None else "run"

    @property
    def task_id(self) -> str:
        """Which task it worked on: as its labels say (`task`, in a `dataset` if there is one), so that all trials of a
        task are of one; else the hash of the task's text."""
        labels = self.started.labels
        if labels.get("task"):
            return f"{labels['dataset']}/{labels['task']}" if labels.get("dataset") else labels["task"]
        return self.started.task.hash.hex()

    @property
    def annotations(self) -> dict[str, str]:
        """Those about the whole of it, the last of each name."""
        bodies = (event.body for event in self.own)
        said = [one for one in bodies if isinstance(one, ev.Annotated) and one.target is TargetKind.TRAJECTORY]
        return {one.name: one.value.text for one in said}

    @property
    def reward(self) -> float | None:
        """As annotated, or as a label says."""
        text = self.annotations.get("reward", self.started.labels.get("reward", ""))
        try:
            return float(text)
        except ValueError:
            return None

    def row(self) -> dict[str, Any]:
        """All that one line can say of it."""
        state, spent, started = self.state, self.state.spent, self.started
        first, last = (self.positions[one.envelope.seq] for one in (self.own[0], self.own[-1]))
        return {
            "trajectory_id": self.trajectory_id,
            "tenant": state.tenant,
            "kind": self.kind,
            "agent": started.agent,
            "driver": started.driver.value,
            "task": started.task.text,
            "task_id": self.task_id,
            "source": started.source or "",
            "labels": dict(started.labels),
            "models": self._models(),
            "turns": state.turn,
            "model_calls": spent.model_calls,
            "tool_calls": spent.tool_calls,
            "input_tokens": spent.input_tokens,
            "output_tokens": spent.output_tokens,
            "cost_usd": spent.cost_micro_usd / 1e6,
            "outcome": state.status.value if state.ended else UNKNOWN,
            "reason": state.reason,
            "reward": self.reward,
            "annotations": self.annotations,
            "compacted": any(isinstance(event.body, ev.Compacted) for event in self.own),
            "verified": self.report.sound,
            "faults": [f"event {one.seq}: {one.kind.value}" for one in self.report.faults],
            "origin": None if started.origin is None else started.origin.model_dump(),
            "parent": None if started.parent is None else started.parent.model_dump(),
            "swarm": started.swarm or "",
            "started_ms": first.timestamp_ms,
            "ended_ms": last.timestamp_ms,
            "cluster_id": self.info.cluster_id,
            "topic_id": self.info.topic_id,
            "partition": first.partition,
            "first_offset": first.offset,
            "last_offset": last.offset,
            "events": state.events,
            "head": state.head.hash.hex(),
        }

    def _models(self) -> list[dict[str, Any]]:
        """The models that served it, in stretches: a new one begins where versions were crossed over."""
        stretches: list[tuple[int, Counter[str]]] = [(0, Counter())]
        for event in self.own:
            if isinstance(event.body, ev.DriftCrossed):
                stretches.append((event.envelope.seq, Counter()))
            elif isinstance(event.body, ev.ModelReplied):
                stretches[-1][1][event.body.model_served or self.started.model or "none"] += 1
        return [
            {"model": name, "from_seq": seq, "replies": many}
            for seq, names in stretches
            for name, many in names.items()
        ]


SAMPLE: Final[dict[str, Any]] = {
    **dict.fromkeys(
        (
            "trajectory_id",
            "tenant",
            "kind",
            "agent",
            "driver",
            "task",
            "task_id",
            "source",
            "outcome",
            "reason",
            "swarm",
            "head",
        ),
        "",
    ),
    **dict.fromkeys(("turns", "model_calls", "tool_calls", "input_tokens", "output_tokens", "events"), 0),
    "labels": {},
    "annotations": {},
    **dict.fromkeys(("compacted", "verified"), True),
    **dict.fromkeys(("cost_usd", "reward"), 0.0),
    "models": [],
    "started_ms": 0,
    "ended_ms": 0,
}
"""The fields of a row that a condition may ask about."""


def finished(
    log: Log, topic: str, blobs: BlobStore, *, left_out: Counter[str], among: frozenset[str] | None = None
) -> Iterator[Finished]:
    """All trajectories (of these) that were started and have ended, partition by partition, by id. Blocks.

    Counts in `left_out`, by why, those that have ended and of which no row can be made.

    Raises what reading a range raises.
    """
    info = log.describe(topic)
    reports = {one.trajectory_id: one for one in Verification(log, topic, among=among).reports()}
    by_partition: dict[int, list[str]] = {}
    for one in reports.values():
        by_partition.setdefault(one.partition if one.partition is not None else 0, []).append(one.trajectory_id)
    for partition in sorted(by_partition):
        names = sorted(by_partition[partition])
        for at in range(0, len(names), BATCH):
            ended: set[str] = set()

            def see(name: str, record: Record, ended: set[str] = ended) -> None:
                if _ENDED in record.headers:
                    ended.add(name)

            histories = read_histories(log, topic, names[at : at + BATCH], see)
            for name in names[at : at + BATCH]:
                state, own = histories.pop(name)
                over = state.ended or (name in ended and not reports[name].sound)  # a sound one: a fenced owner's word
                if over and state.task is not None:
                    yield Finished(log, info, blobs, reports[name], state, own)
                elif over and not reports[name].sound:
                    left_out[NO_BEGINNING] += 1
