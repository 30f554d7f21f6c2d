"""Standing roles in processes of their own, with their probes and metrics."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tracklog.infra.stack.process import wait_until

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("schemas", "infra", "producers", "processors", "consumers")
PARTITIONS = 3
BOUND_S = 60.0
REQUEST_S = 20.0
STOP_S = 30.0
_ADDRESS = re.compile(r"health and metrics at (http://\S+?)[\"\s]")


@dataclass(frozen=True)
class Standing:
    """One process that runs. `said`: the file that has its output."""

    process: subprocess.Popen[bytes]
    said: Path

    @property
    def address(self) -> str:
        found = _ADDRESS.search(self.said.read_text())
        return found[1] if found is not None else ""

    def get(self, path: str) -> tuple[int, Any]:
        """Status and what was said; 0 where nobody answers."""
        try:
            with urllib.request.urlopen(f"{self.address}{path}", timeout=REQUEST_S) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())
        except (OSError, ValueError):
            return 0, self.said.read_text()

    def problems(self, path: str) -> list[str]:
        found: list[str] = self.get(path)[1]["problems"]
        return found

    def until(self, path: str, status: int) -> None:
        assert wait_until(lambda: self.get(path)[0] == status, BOUND_S), (path, self.get(path), self.said.read_text())

    def series(self) -> dict[tuple[str, ...], float]:
        """Its metrics: values by name and the values of the labels in the order of their names."""
        with urllib.request.urlopen(f"{self.address}/metrics", timeout=REQUEST_S) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        samples = [one for family in families for one in family.samples if one.name.startswith("tracklog")]
        return {(one.name, *(one.labels[name] for name in sorted(one.labels))): one.value for one in samples}

    def names(self) -> set[str]:
        return {key[0] for key in self.series()}


@dataclass(frozen=True)
class Installation:
    """What all roles of one log share."""

    log: str
    redis: str
    prefix: str
    folder: Path
    settings: Mapping[str, object] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    def command(self, *words: str, **settings: object) -> list[str]:
        given = {
            "home": self.folder,
            "topics.partitions": PARTITIONS,
            "topics.replication_factor": 1,
            "topics.min_insync_replicas": 1,
            **self.settings,
            **{name.replace("__", "."): value for name, value in settings.items()},
        }
        where = ["--log", self.log, "--redis", self.redis, "--prefix", self.prefix]
        options = [one for name, value in given.items() for one in ("--set", f"{name}={value}")]
        return [sys.executable, "-m", "tests.support.command_line", *where, *options, *words]

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([*(str(ROOT / role) for role in ROLES), str(ROOT)])
        return {**os.environ, "PYTHONPATH": path, **self.env}

    @contextmanager
    def standing(self, *words: str, **settings: object) -> Iterator[Standing]:
        """Started, and answering probes; told to stop at the end of the block, and killed when it does not."""
        self.folder.mkdir(parents=True, exist_ok=True)
        said = self.folder / f"{words[0]}.said"
        command = self.command(*words, **{"health__listen": "127.0.0.1:0", "health__sample_s": 0.1, **settings})
        with said.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=self.environment, cwd=ROOT)
        one = Standing(process, said)
        try:
            one.until("/healthz", 200)
            yield one
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            sys.stdout.write(said.read_text())

    def run(self, *words: str) -> str:
        """One command that ends; its standard output."""
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, env=self.environment, cwd=ROOT, timeout=BOUND_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
