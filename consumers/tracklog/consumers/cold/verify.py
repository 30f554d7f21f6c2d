"""Checking the cold tier as a whole: its files, its rows, the history of every trajectory, the blobs that it names."""

from __future__ import annotations

from dataclasses import dataclass

from tracklog.consumers.cold.checked import CheckedLog, Fault
from tracklog.consumers.export.running import cold_blobs_of
from tracklog.consumers.verify import Verification
from tracklog.infra.cold.faults import speaking_of
from tracklog.infra.cold.table import UNDECODABLE_TABLE, ColdTable, DataFile
from tracklog.infra.cold.upkeep import Leftovers, leftovers
from tracklog.infra.settings import Settings
from tracklog.infra.wiring import blobs_of
from tracklog.schemas.errors import ColdError, ColdMissing

__all__ = ["ColdVerification", "verification_of"]


@dataclass(slots=True)
class ColdVerification:
    """`histories` reads when its `reports` are iterated; what the log notes is complete when that has ended."""

    log: CheckedLog
    histories: Verification
    files: int
    leftovers: Leftovers

    @property
    def rows(self) -> int:
        return sum(count.rows for count in self.log.counts.values())

    @property
    def sound(self) -> bool:
        return not self.log.faults_total and not self.histories.faulty


def verification_of(settings: Settings, *, only: str | None = None, blobs: bool = True) -> ColdVerification:
    """Opens the table and looks at its files. Raises ColdMissing, ColdMismatch, ColdUnavailable, BlobError."""
    cold = settings.cold
    store = None
    if blobs:
        store = cold_blobs_of(settings) if cold.blobs == "copy" else blobs_of(settings)
    log = CheckedLog(cold.url, cold.store_options(), timeout_s=cold.timeout_s, blobs=store)
    table = log.table
    files = table.files()
    for file in files:
        _check_file(log, file)
    _check_aside(log, settings)
    histories = Verification(log, table.identity.topic, only=only)
    return ColdVerification(log, histories, len(files), leftovers(table, 0))


def _check_aside(log: CheckedLog, settings: Settings) -> None:
    """That the table of what is no event is there: it is made with that of the events."""
    cold = settings.cold
    try:
        ColdTable.open(cold.url, cold.store_options(), kind=UNDECODABLE_TABLE, timeout_s=cold.timeout_s)
    except ColdMissing as error:
        log.note(Fault("missing table", None, None, "", None, error.message))


def _check_file(log: CheckedLog, file: DataFile) -> None:
    """Of a file that cannot be read at all, the scan of its partitions says so too."""
    try:
        with speaking_of(file.path), log.table.parquet(file.path) as parquet:
            rows = parquet.metadata.num_rows
    except ColdError:
        return
    if rows != file.rows:
        detail = f"{file.path} has {rows} rows, and was exported with {file.rows}"
        log.note(Fault("altered file", None, None, "", None, detail))
