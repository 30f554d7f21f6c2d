"""Records that are not ours: kept raw in the quarantine topic, with the reason and where they came from (DESIGN §4).

Headers are the record's own and then `tl-reason`, `tl-source-topic`, `tl-source-partition`, `tl-source-offset`. The
source position is the identity: after a crash a record may be quarantined twice, and counts once.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Final, NamedTuple

from tracklog.infra.log.port import Delivered, Headers, Log, Position, Record
from tracklog.schemas.errors import AppendError, AppendUnknown, RecordTooLarge

REASON: Final = "tl-reason"
SOURCE_TOPIC: Final = "tl-source-topic"
SOURCE_PARTITION: Final = "tl-source-partition"
SOURCE_OFFSET: Final = "tl-source-offset"
FULL_BYTES: Final = "tl-full-bytes"
"""Set where the value was cut, to its size: a record as large as the log takes has no room for our headers."""
CUT_BYTES: Final = 64 * 1024
REPORT_TIMEOUT_S: Final = 30.0


Reports = queue.SimpleQueue[tuple[int, AppendError | None]]


class Poison(NamedTuple):
    """A record that cannot be decoded, and why."""

    record: Record
    reason: str


class Quarantine:
    """Appends poison to the quarantine topic and waits for the reports."""

    def __init__(self, log: Log, topic: str, *, timeout_s: float = REPORT_TIMEOUT_S) -> None:
        self._log = log
        self._topic = topic
        self._timeout_s = timeout_s
        self._done: dict[int, set[int]] = {}

    def put(self, partition: int, poison: Sequence[Poison]) -> None:
        """Returns when each of them is in the topic. Once put, a record is not put again until `moved`.

        Raises AppendError, AppendUnknown when reports did not come in time: the same call may follow.
        """
        done = self._done.setdefault(partition, set())
        waiting = [one for one in poison if one.record.offset not in done]
        errors = self._append(waiting, done, cut=False)
        large = {offset for offset, error in errors.items() if isinstance(error, RecordTooLarge)}
        rest = {offset: error for offset, error in errors.items() if offset not in large}
        rest |= self._append([one for one in waiting if one.record.offset in large], done, cut=True)
        for error in rest.values():
            raise error

    def moved(self, partition: int) -> None:
        """The position behind what was put is stored: it will not come again from here."""
        self._done.pop(partition, None)

    def _append(self, poison: Sequence[Poison], done: set[int], *, cut: bool) -> dict[int, AppendError]:
        """Appends, waits for all reports, and gives the errors by offset."""
        reports: Reports = queue.SimpleQueue()
        for one in poison:
            offset = one.record.offset
            try:
                self._log.append(self._topic, *_kept(one, cut), _reporting(offset, reports))
            except AppendError as refused:
                reports.put((offset, refused))
        errors: dict[int, AppendError] = {}
        for _ in poison:
            offset, error = self._report(reports)
            if error is None:
                done.add(offset)
            else:
                errors[offset] = error
        return errors

    def _report(self, reports: Reports) -> tuple[int, AppendError | None]:
        try:
            return reports.get(timeout=self._timeout_s)
        except queue.Empty:
            raise AppendUnknown(f"no report of an append to {self._topic} within {self._timeout_s:g} s") from None


def _kept(poison: Poison, cut: bool) -> tuple[bytes, bytes, Headers]:
    """Key, value and headers in the quarantine. A record without a key is put under its source partition."""
    record = poison.record
    key = record.key or f"{record.topic}/{record.partition}".encode()
    value = record.value or b""
    if cut:
        return key[:CUT_BYTES], value[:CUT_BYTES], (*_origin(poison), (FULL_BYTES, str(len(value)).encode()))
    return key, value, (*record.headers, *_origin(poison))


def _origin(poison: Poison) -> Headers:
    record = poison.record
    return (
        (REASON, poison.reason.encode()),
        (SOURCE_TOPIC, record.topic.encode()),
        (SOURCE_PARTITION, str(record.partition).encode()),
        (SOURCE_OFFSET, str(record.offset).encode()),
    )


def _reporting(offset: int, reports: Reports) -> Delivered:
    def delivered(position: Position | None, error: AppendError | None) -> None:
        reports.put((offset, error))

    return delivered
