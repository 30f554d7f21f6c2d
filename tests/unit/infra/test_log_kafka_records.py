"""How records are taken from a Kafka client."""

from __future__ import annotations

from typing import Any

import pytest

from tracklog.infra.log.kafka_records import fetch


class Client:
    """Notes how long it is to wait. It waits whole milliseconds, as the real one does."""

    def __init__(self) -> None:
        self.waits_ms: list[int] = []

    def poll(self, timeout_s: float) -> None:
        self.waits_ms.append(int(timeout_s * 1000))


@pytest.mark.parametrize(("wait_s", "waits_ms"), [(0.0, 0), (0.0002, 1), (0.001, 1), (0.0011, 2), (0.5, 500)])
def test_a_wait_is_rounded_up_so_that_nobody_asks_without_a_pause(wait_s: float, waits_ms: int) -> None:
    client: Any = Client()

    assert fetch(client, 10, wait_s) == ()

    assert client.waits_ms == [waits_ms]
