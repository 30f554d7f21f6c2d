"""Releases for tests that run the chart's pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ValkeyFactory
from tests.support.chart_pods import Node, Secrets
from tests.support.chart_release import READY_S, Release, values_of
from tests.support.chart_secured import Guarded, guarded, port_in
from tests.support.ledger import Ledger, ledger
from tracklog.consumers.api.tokens import hash_of, new_token
from tracklog.infra.clock import SystemEntropy

Shop = tuple[Ledger, str]
"""And its address."""


@contextmanager
def released(values: Mapping[str, Any], secrets: Secrets, shop: Shop, folder: Path) -> Iterator[Release]:
    """A release whose hook has run, with two people who may use its API."""
    tokens = {name: new_token(SystemEntropy()) for name in ("ada", "mo")}
    entries = [
        f'[{name}]\nperson = "{name}"\nhash = "{hash_of(token)}"\nroles = ["approver", "operator"]\ntenants = ["*"]\n'
        for name, token in tokens.items()
    ]
    node = Node(values, folder, {**secrets, "api-tokens": {"tokens.toml": "".join(entries)}})
    with node.running():
        node.done("Job", "-topics", READY_S)
        yield Release(node, shop[0], port_in(shop[1]), tokens)


@pytest.fixture
def services(kafka_libs: Path, valkey_factory: ValkeyFactory, fresh_prefix: str, tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path, kafka_libs, valkey_factory, fresh_prefix) as made:
        yield made


@pytest.fixture
def release(services: Guarded, fresh_prefix: str, tmp_path: Path) -> Iterator[Release]:
    """Every role but Faust, which speaks plain text only, on services that ask who somebody is."""
    with ledger() as shop:
        values = services.values(values_of("HOST:1", fresh_prefix, shop[1]), shop[1])
        with released(values, services.secrets, shop, tmp_path) as made:
            yield made


@pytest.fixture
def plain_release(kafka_bootstrap: str, redis_db: str, fresh_prefix: str, tmp_path: Path) -> Iterator[Release]:
    """On services that ask nobody who they are."""
    with ledger() as shop:
        values = values_of(kafka_bootstrap, fresh_prefix, shop[1])
        with released(values, {"redis": {"url": redis_db}}, shop, tmp_path) as made:
            yield made


@pytest.fixture
def faust_release(kafka_bootstrap: str, redis_db: str, fresh_prefix: str, tmp_path: Path) -> Iterator[Release]:
    """On plain services, with Faust as the processors' runner."""
    with ledger() as shop:
        values = values_of(kafka_bootstrap, fresh_prefix, shop[1])
        values["components"] |= {"faust": {"enabled": True}, "processors": {"enabled": False}}
        with released(values, {"redis": {"url": redis_db}}, shop, tmp_path) as made:
            yield made
