"""A real Prometheus over the roles of an installation."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import missing_service
from tests.support.standing import Standing
from tracklog.infra.stack.ports import free_ports
from tracklog.infra.stack.process import wait_until

START_S = 30.0
TOOL_S = 60.0
ASK_S = 10.0
NAMESPACE = "agents"


def promtool(*words: str | Path) -> str:
    found = shutil.which("promtool")
    if found is None:
        missing_service("promtool is not on the PATH (Debian: apt-get install prometheus)")
    done = subprocess.run([found, *map(str, words)], capture_output=True, text=True, timeout=TOOL_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Prometheus:
    url: str

    def values(self, query: str) -> list[float]:
        """Of an instant query, without those that are no numbers."""
        found = self._get("/api/v1/query?" + urllib.parse.urlencode({"query": query}))["result"]
        return [value for one in found if not math.isnan(value := float(one["value"][1]))]

    def firing(self) -> set[str]:
        alerts = self._get("/api/v1/alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=ASK_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=ASK_S) as answer:
                said = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode()}") from None
        assert said["status"] == "success", said
        return said["data"]


@contextmanager
def scraping(
    folder: Path, roles: Mapping[str, Standing], rules: str, others: Mapping[str, str] | None = None
) -> Iterator[Prometheus]:
    """Scrapes each role every second, as pods of one namespace, and judges the rules as often. `others`: host:port of
    what is no role, by the name of its pod."""
    program = shutil.which("prometheus")
    if program is None:
        missing_service("prometheus is not on the PATH (Debian: apt-get install prometheus)")
    folder.mkdir()
    (folder / "rules.yaml").write_text(rules, encoding="utf-8")
    places = {role: one.address.removeprefix("http://") for role, one in roles.items()}
    targets = [
        {"targets": [place], "labels": {"namespace": NAMESPACE, "pod": pod}}
        for pod, place in {**places, **(others or {})}.items()
    ]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "tracklog", "static_configs": targets}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    (port,) = free_ports(1)
    command = [
        program,
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        one = Prometheus(f"http://127.0.0.1:{port}")
        assert wait_until(one.answers, START_S), (folder / "said").read_text()
        yield one
    finally:
        process.terminate()
        process.wait(START_S)
