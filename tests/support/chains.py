"""Chains of encoded events for tests that need a log before any writer has run: made and appended.

`append_all` puts records of many chains into a log and waits for every delivery report.
"""

from __future__ import annotations

from collections.abc import Iterable

from tracklog.infra.log.port import Delivered, Log, Position
from tracklog.processors.sample_runs import RECORDED_AT_US, Chain, Made, interleaved, run_of
from tracklog.schemas.errors import AppendError

__all__ = ["RECORDED_AT_US", "Chain", "Made", "append_all", "interleaved", "run_of"]

APPEND_TIMEOUT_S = 30.0


def append_all(log: Log, topic: str, records: Iterable[Made]) -> list[Position]:
    """Appends in order and waits for every report. Raises the first AppendError."""
    positions: dict[int, Position] = {}
    errors: list[AppendError] = []

    def report_of(number: int) -> Delivered:
        def delivered(position: Position | None, error: AppendError | None) -> None:
            if error is not None:
                errors.append(error)
            elif position is not None:
                positions[number] = position

        return delivered

    count = 0
    for record in records:
        log.append(topic, record.key, record.value, record.headers, report_of(count))
        count += 1
    left = log.flush(APPEND_TIMEOUT_S)
    if errors:
        raise errors[0]
    assert left == 0, f"{left} appends to {topic} were not reported within {APPEND_TIMEOUT_S:g} s"
    return [positions[number] for number in range(count)]
