"""A release for tests that run the chart's pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chart_pods import Node
from tests.support.chart_release import READY_S, Release, values_of
from tests.support.ledger import ledger
from tracklog.consumers.api.tokens import hash_of, new_token
from tracklog.infra.clock import SystemEntropy


@pytest.fixture
def release(kafka_bootstrap: str, redis_db: str, fresh_prefix: str, tmp_path: Path) -> Iterator[Release]:
    tokens = {name: new_token(SystemEntropy()) for name in ("ada", "mo")}
    entries = [
        f'[{name}]\nperson = "{name}"\nhash = "{hash_of(token)}"\nroles = ["approver", "operator"]\ntenants = ["*"]\n'
        for name, token in tokens.items()
    ]
    secrets = {"redis": {"url": redis_db}, "api-tokens": {"tokens.toml": "".join(entries)}}
    with ledger() as (shop, url):
        node = Node(values_of(kafka_bootstrap, redis_db, fresh_prefix, url), tmp_path, secrets)
        with node.running():
            node.done("Job", "-topics", READY_S)
            yield Release(node, shop, tokens)
