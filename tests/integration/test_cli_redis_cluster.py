"""Views in a Redis Cluster, as its address in the settings says: folded, listed, compared with the log."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from typer.testing import CliRunner

from tests.conftest import require_valkey
from tests.support.kube_cluster import until
from tracklog.consumers.cli.app import app
from tracklog.infra.stack.ports import free_ports
from tracklog.infra.stack.valkey_server import find_valkey

pytestmark = pytest.mark.redis

START_S = 20.0
SLOTS = 16_384


@pytest.fixture
def cluster_url(tmp_path: Path) -> Iterator[str]:
    """One node that has all slots."""
    require_valkey()
    port, bus = free_ports(2)
    words = {"port": port, "cluster-port": bus, "cluster-enabled": "yes", "bind": "127.0.0.1", "dir": tmp_path}
    words |= {"maxmemory-policy": "noeviction", "save": ""}
    command = [str(find_valkey()), *(word for name, value in words.items() for word in (f"--{name}", str(value)))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with redis.Redis(port=port) as node:
            until(lambda: _answers(node), START_S, "the node answers")
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
            until(lambda: b"cluster_state:ok" in node.execute_command("CLUSTER", "INFO"), START_S, "it has its slots")
        yield f"redis+cluster://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(10)


def _answers(node: redis.Redis) -> bool:
    try:
        return bool(node.ping())
    except redis.ConnectionError:
        return False


def test_a_cluster_named_in_the_settings_holds_the_views(cluster_url: str, tmp_path: Path) -> None:
    given = ["--redis", cluster_url, "--set", f"home={tmp_path / 'home'}"]

    outcomes = [
        CliRunner().invoke(app, [*words, *given])
        for words in (
            ["selftest", "--no-views"],
            ["process", "--once"],
            ["selftest", "--no-views"],
            ["process", "--once"],
            ["verify", "--all", "--against", "redis"],
            ["projections", "list"],
            ["list"],
        )
    ]

    assert [done.exit_code for done in outcomes] == [0] * len(outcomes), [done.output for done in outcomes]
    assert outcomes[-1].stdout.count("selftest-") == 2
