"""DBOS: a workflow with a step. Another process that is started on the same database goes on with what is pending."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.peers.cases import END_S_MAX, STOPS, Case, start, wait_stopped, wake
from benchmarks.peers.installed import PYTHON, version
from benchmarks.peers.stopping import Job


class Dbos:
    tools: Sequence[str] = ("key", "nothing")
    at_once = 2

    def __init__(self, databases: str | None) -> None:
        self._databases = databases
        self.title = f"DBOS {version('dbos')} on {'SQLite' if databases is None else 'Postgres'}"

    def run(self, case: Case, folder: Path, ledger_url: str) -> str:
        keeps = f"sqlite:///{folder}/dbos.sqlite" if self._databases is None else f"{self._databases}/{case.name}"
        job = Job(case.name, str(folder), ledger_url, case.point, STOPS[case.stop], case.tool == "key", database=keeps)
        said = folder / "said"
        first = self._start(job, said)
        wait_stopped(first, said)
        second = self._start(replace(job, resumes=True), said)
        try:
            second.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            second.kill()
            return "no end"
        finally:
            wake(first)
        return "done" if second.returncode == 0 else f"ended with {second.returncode}: {said.read_text()[-500:]}"

    def _start(self, job: Job, said: Path) -> subprocess.Popen[bytes]:
        return start([str(PYTHON), "-m", "benchmarks.peers.dbos_agent", job.argument()], said)
