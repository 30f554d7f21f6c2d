"""A processor written by following docs/processors.md and nothing else, plugged in while runs are appended in a loop.

Its process is killed again and again and it is rebuilt meanwhile, all by the commands that the page names. What is
stored in the end must be what a plain loop over the events counts.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.property.writers import event_of
from tests.support.beside import beside
from tests.support.chains import Chain, append_all, interleaved, run_of
from tests.support.projecting_process import ROOT, member_environment
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.open import open_log
from tracklog.infra.redis_client import connect
from tracklog.infra.settings_sections import Settings
from tracklog.infra.stack.process import wait_until
from tracklog.processors.redis_store import live_keys
from tracklog.schemas import events as ev
from tracklog.schemas.values import Body, ResultStatus, Settled

PAGE = ROOT / "docs" / "processors.md"
NAME = "failures"
LOAD = "my_views.failures:Failures"
RUNS_AT_ONCE = 10
PROGRESS_S = 60.0
COMMAND_S = 300.0


class Plugged(NamedTuple):
    """`equal` of each rebuild. `wrong`: trajectories whose stored number is not the counted one."""

    runs: int
    events: int
    kills: int
    equal: list[bool | None]
    wrong: list[str]
    verified: bool


def code_of_the_page() -> list[str]:
    """Its Python examples, in order: the class, and its test."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def some_run(number: int) -> Chain:
    """A run of which some calls fail."""
    chain = run_of(f"run-{number:04d}", turns=1 + number % 3, ending=None)
    for n in range(number % 4):
        failed = ev.ToolResult(
            call_id=f"more-{n}", status=ResultStatus.ERROR, output=Body.of("no"), settled=Settled.RECORDED
        )
        chain.add(failed, turn=1)
    return chain


class PluggedIn:
    """On a log and a Redis that are given, in a folder of its own."""

    def __init__(self, log_url: str, redis_url: str, prefix: str, folder: Path) -> None:
        self._given = ["--log", log_url, "--redis", redis_url, "--prefix", prefix]
        self._folder = folder
        self._log, self._client = open_log(log_url), connect(redis_url, timeout_s=5)
        topics = {"partitions": 3, "replication_factor": 1, "min_insync_replicas": 1}
        self._settings = Settings.model_validate({"prefix": prefix, "topics": topics})
        self._log.create(self._settings.topic_specs())
        self._runs: list[Chain] = []
        self._clock = SystemClock()

    def write_it(self) -> None:
        """As the page says. Raises CalledProcessError when its own test, also the page's, does not pass."""
        views = self._folder / "my_views"
        views.mkdir()
        code, test = code_of_the_page()[:2]
        (views / "__init__.py").touch()
        (views / "failures.py").write_text(code)
        (self._folder / "test_failures.py").write_text(f"from my_views.failures import Failures\n{test}")
        own = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_failures.py"]
        subprocess.run(own, cwd=self._folder, env=self._environment(), check=True, timeout=COMMAND_S)

    def run(self, *, runs: int, kills: int, rebuilds: int) -> Plugged:
        equal: list[bool | None] = []
        with beside(partial(self._append, runs), COMMAND_S):
            for number in range(kills):
                self._killed_after_some_progress()
                if number % max(1, kills // rebuilds) == 1:
                    equal.append(json.loads(self._command("projections", "rebuild", NAME, *self._load()))["equal"])
        self._command("process", NAME, "--once", *self._load())
        verified = json.loads(self._command("projections", "verify", NAME, *self._load()))["difference"] is None
        events = sum(len(run.records) for run in self._runs)
        return Plugged(len(self._runs), events, kills, equal, self._wrong(), verified)

    def close(self) -> None:
        self._log.close()
        self._client.close()

    def _append(self, runs: int, stop: threading.Event) -> None:
        """In a loop until it is to stop; at least so many runs."""
        while len(self._runs) < runs or not stop.is_set():
            more = [some_run(n) for n in range(len(self._runs), len(self._runs) + RUNS_AT_ONCE)]
            append_all(self._log, self._settings.topic_names.events, interleaved(more))
            self._runs += more
            stop.wait(0.5)

    def _killed_after_some_progress(self) -> None:
        before = self._position()
        command = [sys.executable, "-m", "tests.support.command_line", *self._given]
        process = subprocess.Popen(
            [*command, "process", NAME, *self._load()],
            cwd=self._folder,
            env=self._environment(),
            stderr=subprocess.PIPE,
        )
        try:
            moved = wait_until(lambda: self._position() > before or process.poll() is not None, PROGRESS_S)
            assert moved, "it does not get on"
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
        finally:
            process.kill()
            process.communicate()

    def _position(self) -> int:
        live = live_keys(self._client, self._settings.prefix, NAME)
        if live is None:
            return 0
        client: Any = self._client
        return sum(int(client.hget(live.keys.checkpoint(p), "position") or 0) for p in range(live.partitions))

    def _load(self) -> list[str]:
        return ["--load", LOAD]

    def _environment(self) -> dict[str, str]:
        own = member_environment()
        few = {"TRACKLOG_TOPICS__REPLICATION_FACTOR": "1", "TRACKLOG_TOPICS__MIN_INSYNC_REPLICAS": "1"}
        return {
            **own,
            **few,
            "TRACKLOG_TOPICS__PARTITIONS": "3",
            "PYTHONPATH": os.pathsep.join([own["PYTHONPATH"], str(ROOT), str(self._folder)]),
        }

    def _command(self, *words: str) -> str:
        command = [sys.executable, "-m", "tests.support.command_line", "--json", *self._given, *words]
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _wrong(self) -> list[str]:
        """Against a loop over the events that knows nothing of processors."""
        counted: Counter[str] = Counter()
        for run in self._runs:
            for made in run.records:
                body = event_of(made).body
                if isinstance(body, ev.ToolResult):
                    counted[run.trajectory_id] += body.status is ResultStatus.ERROR
        client: Any = self._client
        stored: dict[str, float] = {}
        for key in client.scan_iter(match=f"{self._settings.prefix}:{{*}}:{NAME}:*:by-trajectory", count=1000):
            stored |= {name.decode(): score for name, score in client.zrange(key, 0, -1, withscores=True)}
        return [name for name in sorted(counted.keys() | stored.keys()) if counted.get(name) != stored.get(name)]
