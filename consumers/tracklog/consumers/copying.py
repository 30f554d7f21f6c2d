"""Appending replayed records to another topic as they are, with where they came from in their headers."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

from tracklog.infra.log.port import Headers, Log, Position, Record
from tracklog.processors.quarantine import SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC
from tracklog.schemas.errors import AppendError, AppendUnknown, InputError, LogQueueFull, TopicMissing
from tracklog.schemas.topics import Topics

FLUSH_TIMEOUT_S: Final = 60.0
SOURCE_TIMESTAMP: Final = "tl-source-timestamp"


def check_target(topics: Topics, source: str, target: str, *, force: bool) -> None:
    """InputError for a copy into the source, or into another topic of this installation, without `force`."""
    if force or target not in {source, *topics.all}:
        return
    what = "the topic it is read from" if target == source else f"a topic of the installation {topics.prefix!r}"
    raise InputError(
        f"--to-topic {target} is {what}: appended records would become part of its histories",
        hint="copy to another topic, or say --force if you are sure",
    )


class TopicCopy:
    """Appends and counts. `copied` are those whose delivery report has come; `finish` waits for all of them.

    Raises TopicMissing, and InputError for a topic that holds records, without `force`, before anything is read.
    """

    def __init__(self, log: Log, target: str, *, force: bool = False) -> None:
        self._log = log
        self._target = target
        self._lock = threading.Lock()
        self._error: AppendError | None = None
        self.copied = 0
        _check_empty(log, target, force=force)

    def append(self, record: Record) -> None:
        """Queues one record. Raises the first error that any append before has met."""
        self._check()
        headers = (*without_provenance(record.headers), *provenance(record))
        while True:
            try:
                self._log.append(self._target, record.key or b"", record.value or b"", headers, self._delivered)
                return
            except LogQueueFull:
                self._log.flush(FLUSH_TIMEOUT_S)

    def append_all(self, records: Iterable[Record]) -> int:
        for record in records:
            self.append(record)
        return self.finish()

    def finish(self) -> int:
        """How many are durable. Raises the first AppendError, and AppendUnknown when reports did not come."""
        left = self._log.flush(FLUSH_TIMEOUT_S)
        self._check()
        if left:
            raise AppendUnknown(f"{left} appends to {self._target} were not reported within {FLUSH_TIMEOUT_S:g} s")
        return self.copied

    def _delivered(self, position: Position | None, error: AppendError | None) -> None:
        with self._lock:
            self.copied += position is not None
            self._error = self._error or error

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


def _check_empty(log: Log, target: str, *, force: bool) -> None:
    """Whatever writes to a topic has left records in it: another installation, or a copy made before."""
    try:
        bounds = [log.bounds(target, partition) for partition in range(log.partition_count(target))]
    except TopicMissing as error:
        raise TopicMissing(error.message, hint=_way_to_make(target)) from error
    held = sum(one.end - one.first for one in bounds)
    if held and not force:
        raise InputError(
            f"--to-topic {target} holds {held} records already: the copy would be mixed with them",
            hint="copy to an empty topic, or say --force if you are sure",
        )


def _way_to_make(target: str) -> str:
    prefix, _, kind = target.rpartition(".")
    if prefix and kind == "events":
        return f"create it first: tracklog --prefix {prefix} topics apply"
    return "create it first with the tools of your Kafka, or name PREFIX.events of another prefix"


def provenance(record: Record) -> tuple[tuple[str, bytes], ...]:
    return (
        (SOURCE_TOPIC, record.topic.encode()),
        (SOURCE_PARTITION, str(record.partition).encode()),
        (SOURCE_OFFSET, str(record.offset).encode()),
        (SOURCE_TIMESTAMP, str(appended_ms(record)).encode()),
    )


def appended_ms(record: Record) -> int:
    """When it was appended where it was written: of a copy, not when it was copied. Milliseconds since 1970 UTC."""
    said = next((value for name, value in record.headers if name == SOURCE_TIMESTAMP), b"")
    return int(said) if said.isdigit() else record.timestamp_ms


def without_provenance(headers: Headers) -> Headers:
    """The headers that a record had where it was written."""
    return tuple(header for header in headers if header[0] not in _PROVENANCE)


_PROVENANCE: Final = frozenset({SOURCE_TOPIC, SOURCE_PARTITION, SOURCE_OFFSET, SOURCE_TIMESTAMP})
