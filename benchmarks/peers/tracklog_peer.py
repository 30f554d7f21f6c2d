"""Tracklog: a session whose tool says of which class it is, on Kafka. Another process opens it again."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.cases import Case
from tests.support import crash_matrix
from tests.support.matrix_worker import Job, calls_of
from tests.support.writing import make_topics, read_accepted
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.schemas.events import ToolResult
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import ResultStatus

CLASS_OF = {"key": "idempotent", "probe": "probe", "nothing": "opaque"}
POINT_OF = {
    "before": "ToolIntent.append",
    "effect.start": "effect.start",
    "effect.end": "effect.end",
    "after": "ToolResult.stored",
}


class Tracklog:
    """With deadlines of seconds, so that a call in doubt is settled soon: see `tests.support.matrix_worker`."""

    tools: Sequence[str] = ("key", "probe", "nothing")
    at_once = 2

    def __init__(self, bootstrap: str) -> None:
        self._url = f"kafka://{bootstrap}"
        self.title = f"Tracklog {version('tracklog')} on Kafka"

    def run(self, case: Case, folder: Path, ledger_url: str) -> str:
        log = open_log(self._url)
        make_topics(log, Topics(case.name))
        job = Job(log.url, case.name, str(folder / "blobs"), ledger_url, ())
        stopped = crash_matrix.Case(trajectory_of(case), POINT_OF[case.point], 1, 0.0)
        try:
            if case.stop == "SIGSTOP":
                with crash_matrix.frozen(job, stopped):
                    return self._resumed(log, job, stopped)
            crash_matrix.kill_all(job, [stopped])
            return self._resumed(log, job, stopped)
        finally:
            log.close()

    def _resumed(self, log: Log, job: Job, case: crash_matrix.Case) -> str:
        """What came of the call at which it was stopped."""
        ended = crash_matrix.resumed(job, [case.trajectory_id])[case.trajectory_id]
        if ended != "done":
            return {"PersonNeeded": "a person is asked"}.get(ended, ended)
        events = read_accepted(log, case.trajectory_id, prefix=job.prefix)
        first = next(event.body for event in events if isinstance(event.body, ToolResult))
        return "done" if first.status is ResultStatus.OK else f"`{first.status.value}`"


def trajectory_of(case: Case) -> str:
    return f"{CLASS_OF[case.tool]}.{case.name}"


def call_of(case: Case) -> str:
    """The call at which the process was stopped, by which its effects are counted."""
    return calls_of(trajectory_of(case))[0]
