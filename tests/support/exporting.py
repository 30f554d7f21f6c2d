"""An export of a real log, and what the table holds of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.chains import Chain, append_all, interleaved, run_of
from tracklog.consumers.export.running import Export, export_of
from tracklog.infra.clock import Clock, SystemClock, SystemEntropy
from tracklog.infra.cold.scan import scan
from tracklog.infra.cold.table import UNDECODABLE_TABLE, ColdTable, open_events
from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.infra.settings_sections import Settings

PARTITIONS = 3


class Exporting(NamedTuple):
    """A log with its topics and the settings of an installation that exports it to `cold`."""

    log: Log
    settings: Settings

    @property
    def topic(self) -> str:
        return self.settings.topic_names.events

    def export(self, *, clock: Clock | None = None, **more: Any) -> Export:
        """Another one at each call, as another process would have."""
        clock = clock if clock is not None else SystemClock()
        return export_of(self.log, self.settings, clock=clock, entropy=SystemEntropy(), **more)

    def drain(self, **more: Any) -> Export:
        work = self.export(**more)
        work.loop.drain()
        return work

    def with_cold(self, **cold: Any) -> Exporting:
        return self._replace(
            settings=self.settings.model_copy(update={"cold": self.settings.cold.model_copy(update=cold)})
        )

    def fill(self, *chains: Chain) -> int:
        return len(append_all(self.log, self.topic, interleaved(chains)))

    def table(self) -> ColdTable:
        return open_events(self.settings.cold.url, self.settings.cold.store_options())

    def undecodable(self) -> list[dict[str, Any]]:
        options = self.settings.cold.store_options()
        table = ColdTable.open(self.settings.cold.url, options, kind=UNDECODABLE_TABLE)
        rows: list[dict[str, Any]] = table.handle.to_pyarrow_table().to_pylist()
        return rows

    def rows(self) -> list[dict[str, Any]]:
        table = self.table()
        return [row for p in range(PARTITIONS) for part in scan(table, p) for row in part.to_pylist()]

    def expected(self) -> list[tuple[int, int, bytes]]:
        """(partition, offset, value) of each record of the log."""
        found: list[tuple[int, int, bytes]] = []
        for partition in range(self.log.partition_count(self.topic)):
            first, end = self.log.bounds(self.topic, partition)
            records = read_range(self.log, self.topic, partition, first, end)
            found += [(partition, record.offset, record.value or b"") for record in records]
        return found

    def exported(self) -> list[tuple[int, int, bytes]]:
        """The same of the table, in the default framing."""
        return [
            (row["partition"], row["offset"], b"\xc3\x01" + row["fingerprint"] + row["payload"]) for row in self.rows()
        ]


def runs(count: int, **of: Any) -> list[Chain]:
    return [run_of(f"run-{number}", **of) for number in range(count)]


@contextmanager
def exporting_on(log_url: str, prefix: str, folder: Path, *, cold: dict[str, Any] | None = None) -> Iterator[Exporting]:
    settings = Settings.model_validate(
        {
            "prefix": prefix,
            "home": str(folder),
            "topics": {"partitions": PARTITIONS, "replication_factor": 1, "min_insync_replicas": 1},
            "loop": {"batch_records_max": 40, "batch_wait_s": 0.0, "poll_timeout_s": 0.05},
            "cold": {"url": str(folder / "cold"), **(cold or {})},
        }
    )
    log = open_log(log_url)
    try:
        log.create(settings.topic_specs())
        yield Exporting(log, settings)
    finally:
        log.close()
