"""Follows all trajectories of an events topic: what is accepted, as it comes."""

from __future__ import annotations

from collections import defaultdict
from types import TracebackType
from typing import Self

from tracklog.infra.log.port import Log
from tracklog.schemas.codec import Event, decode_event
from tracklog.schemas.fold import fold
from tracklog.schemas.head import Verdict
from tracklog.schemas.state import State

BATCH_RECORDS = 200


class Following:
    def __init__(self, log: Log, topic: str) -> None:
        self.states: dict[str, State] = {}
        self.events: defaultdict[str, list[Event]] = defaultdict(list)
        self._reader = log.reader(topic, dict.fromkeys(range(log.partition_count(topic)), 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._reader.close()

    def poll(self, timeout_s: float) -> list[Event]:
        """The accepted events among the next records; blocks for at most so long."""
        accepted = []
        for record in self._reader.poll(BATCH_RECORDS, timeout_s):
            event = decode_event(record.key, record.value, record.headers)
            name = event.envelope.trajectory_id
            self.states[name], judgement = fold(self.states.get(name, State(name)), event)
            if judgement.verdict is Verdict.ACCEPTED:
                self.events[name].append(event)
                accepted.append(event)
        return accepted
