"""Dashboards and alerts over a running installation, as a real Prometheus sees them."""

from __future__ import annotations

import base64
import itertools
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from scripts.alerts import rules
from scripts.dashboards import RATE, queries
from tests.support.prometheus import Prometheus, scraping
from tests.support.standing import Installation
from tracklog.infra.log.open import open_log
from tracklog.infra.log.ranges import append_and_wait
from tracklog.infra.stack.ports import free_ports
from tracklog.infra.stack.process import wait_until
from tracklog.schemas.topics import Topics

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

BOUND_S = 120.0
WINDOW = "15s"
AGENTS = ("tests.support.standing_views:clerk", "tests.support.standing_views:asker")
ROLES = (
    ("process",),
    ("worker", *AGENTS),
    ("dispatch", "tests.support.standing_views:mail"),
    ("route",),
    ("serve",),
    ("export",),
)
AT_ONCE = {"approvalsFor": "1s", "pausedFor": "1s", "quarantineWindow": "20s"}


class Here(NamedTuple):
    installation: Installation
    prometheus: Prometheus
    api: str

    def work(self, number: int) -> None:
        """One more run, and a request."""
        self.installation.run("submit", "clerk", "look", "--id", f"run-{number}")
        with urllib.request.urlopen(f"{self.api}/trajectories", timeout=BOUND_S) as answer:
            assert answer.status == 200

    def until_firing(self, alert: str, *, fires: bool) -> None:
        found = wait_until(lambda: (alert in self.prometheus.firing()) is fires, BOUND_S)
        assert found, (alert, fires, self.prometheus.firing())


@pytest.fixture(scope="module")
def here(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    folder = tmp_path_factory.mktemp("prometheus")
    (port,) = free_ports(1)
    secret = folder / "secret"
    secret.write_text(f"whsec_{base64.b64encode(bytes(range(32))).decode()}\n")
    settings = {
        "api.port": port,
        "worker.dispatches": True,
        "webhooks.urls": "http://127.0.0.1:9/",
        "webhooks.secret_file": secret,
        "health.approval_overdue_s": 5,
        "cold.age_s": 1,
    }
    log = f"sqlite:{folder / 'log.db'}"
    installation = Installation(log, redis_url, f"p{folder.name[-1]}", folder / "home", settings)
    with ExitStack() as stack:
        standing = {words[0]: stack.enter_context(installation.standing(*words)) for words in ROLES}
        prometheus = stack.enter_context(scraping(folder / "prometheus", standing, rules(AT_ONCE)))
        yield Here(installation, prometheus, f"http://127.0.0.1:{port}")


def test_no_panel_is_empty(here: Here) -> None:
    here.installation.run("submit", "asker", "mail", "--id", "held-0")
    number = itertools.count()

    def empty() -> list[tuple[str, str, str]]:
        here.work(next(number))
        return [one for one in queries() if not here.prometheus.values(_asked(one[2]))]

    assert wait_until(lambda: not empty(), BOUND_S), empty()


def _asked(expr: str) -> str:
    return expr.replace(RATE, WINDOW).replace("$namespace", ".*")


def test_an_approval_that_is_overdue_is_told_and_clears_with_the_decision(here: Here) -> None:
    here.installation.run("submit", "asker", "mail", "--id", "held-1")
    here.until_firing("TracklogApprovalsOverdue", fires=True)
    for held in ("held-0", "held-1"):
        here.installation.run("approvals", "approve", held, "c1", "--as", "ada")
    here.until_firing("TracklogApprovalsOverdue", fires=False)


def test_a_paused_tool_is_told_until_it_goes_on(here: Here) -> None:
    here.installation.run("tools", "pause", "mail", "--as", "ada", "--reason", "the post is closed")
    here.until_firing("TracklogToolPaused", fires=True)
    here.installation.run("tools", "resume", "mail", "--as", "ada")
    here.until_firing("TracklogToolPaused", fires=False)


def test_a_foreign_record_is_told_for_as_long_as_the_window(here: Here) -> None:
    log = open_log(here.installation.log)
    try:
        append_and_wait(log, Topics(here.installation.prefix).events, b"nobody", b"no event", (), timeout_s=BOUND_S)
    finally:
        log.close()
    here.until_firing("TracklogQuarantine", fires=True)
    here.until_firing("TracklogQuarantine", fires=False)
