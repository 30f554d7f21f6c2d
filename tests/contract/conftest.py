from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.contract.log_cases import LogCase
from tracklog.infra.log.port import Log


@pytest.fixture(params=["memory", "sqlite", pytest.param("kafka", marks=pytest.mark.kafka)])
def log_case(request: pytest.FixtureRequest, log_urls: Callable[[str], str], fresh_prefix: str) -> Iterator[LogCase]:
    kind = request.param
    url = f"memory:{fresh_prefix}" if kind == "memory" else log_urls(kind)
    case = LogCase(kind, url, fresh_prefix)
    yield case
    case.close()


@pytest.fixture
def log(log_case: LogCase) -> Log:
    return log_case.open()
