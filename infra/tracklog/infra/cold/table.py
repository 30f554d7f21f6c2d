"""A Delta Lake table of records by offset: what it holds, how far each partition has come, and one commit more.

A commit carries rows of any partitions together with, as application transactions, the next offset of each. The
table refuses a commit whose application somebody else has moved since this handle was read: that is the fencing, so
`next_offset` must be asked of the very handle that then commits. `refresh` lets the handle see what others committed.

    next      the offset after the last record that is in: rows and offsets below it are complete
    first     the offset at which the export of this partition began
    gap       offsets that the log had let go of before they were exported
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction

from tracklog.infra.cold.columns import EVENTS, PARTITIONED_BY, UNDECODABLE
from tracklog.infra.cold.faults import speaking_of
from tracklog.infra.cold.place import Place
from tracklog.schemas.errors import ColdConflict, ColdMismatch, ColdMissing

__all__ = ["EVENTS_TABLE", "UNDECODABLE_TABLE", "ColdTable", "DataFile", "Identity", "Kind", "app_id", "open_events"]

HANDLE_COMMITS_MAX: Final = 50
"""Commits until the handle is opened anew: it keeps what it has read, and grows."""
CHECKPOINT_COMMITS: Final = 20
STATS_COLUMNS: Final = ("partition", "offset", "append_ms", "trajectory_id", "seq", "event_type")
"""Columns whose least and greatest value each file's entry has: what readers skip files by."""


class Kind(NamedTuple):
    """What a table of ours is: its folder under the address, its columns, and which of these are in its log alone."""

    folder: str
    schema: pa.Schema
    partitioned_by: tuple[str, ...]


EVENTS_TABLE: Final = Kind("events", EVENTS, PARTITIONED_BY)
UNDECODABLE_TABLE: Final = Kind("undecodable", UNDECODABLE, ("date",))


class Identity(NamedTuple):
    """Which log a table is the export of. A topic that was made anew, or copied elsewhere, is another one.

    `partitions` is how many the topic has, for who reads the table as a log; 0 where that was not said.
    """

    cluster_id: str
    topic_id: str
    topic: str
    partitions: int = 0


class DataFile(NamedTuple):
    """A Parquet file that the table holds now. `path` is inside the table's folder; ranges are inclusive, and of all
    rows of the file: those of one partition may lie in a part of them."""

    path: str
    size_bytes: int
    rows: int
    partition_min: int
    partition_max: int
    offset_min: int
    offset_max: int
    values: Mapping[str, str | date]
    """Of the columns that are in the table's log alone."""

    def may_hold(self, partition: int, first: int = 0, end: int | None = None) -> bool:
        """False when no row of this partition in [first, end) can be in it."""
        if not self.partition_min <= partition <= self.partition_max or self.offset_max < first:
            return False
        return end is None or self.offset_min < end


def app_id(cluster_id: str, topic_id: str, partition: int, what: str = "next") -> str:
    """The name of an application transaction: whose version is an offset."""
    return f"tracklog/{cluster_id}/{topic_id}/{partition}/{what}"


class ColdTable:
    """See the module. Made by `open` or `create_if_missing`. For one thread."""

    def __init__(self, place: Place, kind: Kind, handle: DeltaTable, *, durable_to: int) -> None:
        self._place = place
        self._kind = kind
        self._handle = handle
        self._filesystem: pafs.FileSystem | None = None
        self._commits = 0
        self._durable_to = durable_to
        self.identity = _identity_of(handle, place.uri)

    @classmethod
    def open(
        cls, url: str, options: Mapping[str, str], *, kind: Kind = EVENTS_TABLE, timeout_s: float = 60.0
    ) -> ColdTable:
        """Raises ColdMissing, ColdMismatch for a table that is none of ours, ColdUnavailable, ColdRefused."""
        place = Place(f"{url.rstrip('/')}/{kind.folder}", options, timeout_s)
        handle = _read(place)
        _check_columns(handle, kind, place.uri)
        return cls(place, kind, handle, durable_to=handle.version())

    @classmethod
    def create_if_missing(
        cls,
        url: str,
        options: Mapping[str, str],
        identity: Identity,
        *,
        kind: Kind = EVENTS_TABLE,
        timeout_s: float = 60.0,
    ) -> ColdTable:
        """Opens the export of this log, made now if there is none. Columns that an older program did not have are
        added. Raises ColdMismatch when it is another log's, and what `open` raises."""
        place = Place(f"{url.rstrip('/')}/{kind.folder}", options, timeout_s)
        try:
            handle = _read(place)
        except ColdMissing:
            handle = _created(place, kind, identity)
        found = _identity_of(handle, place.uri)
        if found[:2] != identity[:2]:
            raise ColdMismatch(
                f"{place.uri} holds topic {found.topic} (id {found.topic_id}) of cluster {found.cluster_id}, this is"
                f" topic {identity.topic} (id {identity.topic_id}) of cluster {identity.cluster_id}",
                hint="was the topic made anew, or is this another cluster? Export it to another address",
            )
        handle = _with_new_columns(place, handle, kind)
        _check_columns(handle, kind, place.uri)
        place.sync_log(range(handle.version() + 1))
        return cls(place, kind, handle, durable_to=handle.version())

    @property
    def uri(self) -> str:
        return self._place.uri

    @property
    def kind(self) -> Kind:
        return self._kind

    @property
    def place(self) -> Place:
        return self._place

    @property
    def handle(self) -> DeltaTable:
        """Of deltalake, as it was last read."""
        return self._handle

    @property
    def version(self) -> int:
        return self._handle.version()

    def refresh(self) -> None:
        """Reads what others have committed; opens the table anew now and then. Raises ColdUnavailable."""
        if self._commits >= HANDLE_COMMITS_MAX:
            self.reopen()
            return
        with speaking_of(f"cannot read {self.uri}"):
            self._handle.update_incremental()

    def reopen(self) -> None:
        self._handle = _read(self._place)
        self._commits = 0

    def next_offset(self, partition: int) -> int | None:
        """How far this partition has come, as this handle knows it; None when nothing of it is in."""
        return self._moved_to(partition, "next")

    def first_offset(self, partition: int) -> int | None:
        """Where its export began."""
        return self._moved_to(partition, "first")

    def gap_end(self, partition: int, first: int) -> int | None:
        """The end of the gap that begins at this offset; None when none does."""
        return self._moved_to(partition, f"gap/{first}")

    def _moved_to(self, partition: int, what: str) -> int | None:
        with speaking_of(f"cannot read {self.uri}"):
            return self._handle.transaction_version(app_id(*self.identity[:2], partition, what))

    def files(self, partition: int | None = None, first: int = 0, end: int | None = None) -> list[DataFile]:
        """The files that may hold rows of the partition in [first, end), by their least offset; without, all."""
        with speaking_of(f"cannot read {self.uri}"):
            found = [_data_file(row, self._kind) for row in pa.table(self._handle.get_add_actions(True)).to_pylist()]
        if partition is not None:
            found = [file for file in found if file.may_hold(partition, first, end)]
        return sorted(found, key=lambda file: (file.offset_min, file.path))

    def filesystem(self) -> pafs.FileSystem:
        """For reading the table's files by their `path`."""
        if self._filesystem is None and self._place.folder is not None:
            self._filesystem = pafs.SubTreeFileSystem(str(self._place.folder), pafs.LocalFileSystem())
        elif self._filesystem is None:
            self._filesystem = self._handle.to_pyarrow_dataset().filesystem
        return self._filesystem

    def parquet(self, path: str) -> pq.ParquetFile:
        """One file, open for reading; close it. Raises what pyarrow raises: see `cold.faults.speaking_of`."""
        return pq.ParquetFile(self.filesystem().open_input_file(path))

    def has(self, path: str) -> bool:
        """Whether a file of the table is there."""
        with speaking_of(f"cannot read {self.uri}"):
            return bool(self.filesystem().get_file_info(path).type == pafs.FileType.File)

    def commit(self, added: Sequence[AddAction], moved: Mapping[str, int]) -> None:
        """Adds staged files and moves applications, in one step that is durable when this returns.

        Raises ColdConflict when somebody else has moved one of them since this handle was read: nothing was written.
        """
        self._commits += 1
        transactions = [Transaction(app, version) for app, version in moved.items()]
        with speaking_of(f"cannot commit to {self.uri}"):
            self._handle.create_write_transaction(
                list(added),
                "append",
                self._handle.schema(),
                partition_by=list(self._kind.partitioned_by),
                commit_properties=CommitProperties(app_transactions=transactions),
            )
        self.refresh()
        self._sync()

    def _sync(self) -> None:
        version = self.version
        self._place.sync_log(range(self._durable_to + 1, version + 1))
        self._durable_to = version


def open_events(url: str, options: Mapping[str, str], *, timeout_s: float = 60.0) -> ColdTable:
    """The events table under an address, for reading."""
    return ColdTable.open(url, options, timeout_s=timeout_s)


def _read(place: Place) -> DeltaTable:
    with speaking_of(f"cannot open {place.uri}"):
        if place.folder is not None and not place.folder.is_dir():
            raise ColdMissing(f"there is no table at {place.uri}", hint="`tracklog export` makes it")
        return DeltaTable(place.uri, storage_options=place.storage_options)


def _created(place: Place, kind: Kind, identity: Identity) -> DeltaTable:
    """The first of several who try makes it; all read it."""
    place.prepare()
    with suppress(ColdConflict), speaking_of(f"cannot make a table in {place.uri}"):
        DeltaTable.create(
            place.uri,
            kind.schema,
            mode="ignore",
            partition_by=list(kind.partitioned_by),
            name=f"tracklog-{kind.folder}",
            storage_options=place.storage_options,
            raise_if_key_not_exists=False,
            configuration={
                "tracklog.cluster_id": identity.cluster_id,
                "tracklog.topic_id": identity.topic_id,
                "tracklog.topic": identity.topic,
                "tracklog.partitions": str(identity.partitions),
                "delta.checkpointInterval": str(CHECKPOINT_COMMITS),
                "delta.dataSkippingStatsColumns": ",".join(c for c in STATS_COLUMNS if c in kind.schema.names),
            },
        )
    return _read(place)


def _identity_of(handle: DeltaTable, uri: str) -> Identity:
    kept = handle.metadata().configuration
    try:
        named = (kept["tracklog.cluster_id"], kept["tracklog.topic_id"], kept["tracklog.topic"])
        return Identity(*named, int(kept.get("tracklog.partitions", "0")))
    except KeyError as error:
        raise ColdMismatch(
            f"{uri} is a Delta table, and none that `tracklog export` made", hint="name another address"
        ) from error


def _arrow_fields(handle: DeltaTable) -> dict[str, pa.Field]:
    schema = pa.schema(handle.schema().to_arrow())
    return {field.name: field for field in schema}


def _check_columns(handle: DeltaTable, kind: Kind, uri: str) -> None:
    """Columns that are not known must allow nulls; those known must be there and be of their type."""
    found = _arrow_fields(handle)
    wrong = [field.name for field in kind.schema if _differs(found.get(field.name), field)]
    strange = [name for name, field in found.items() if name not in kind.schema.names and not field.nullable]
    if wrong or strange or tuple(handle.metadata().partition_columns) != kind.partitioned_by:
        named = ", ".join(wrong + strange) or "what it is partitioned by"
        raise ColdMismatch(
            f"{uri}: columns are not those of this program: {named}",
            hint="was it written by a newer Tracklog? Then use that one; else export to another address",
        )


def _differs(found: pa.Field | None, wanted: pa.Field) -> bool:
    """A column that may be null may also be absent: an older program made the table."""
    if found is None:
        return not wanted.nullable
    return _plain(found.type) != _plain(wanted.type)


def _plain(kind: pa.DataType) -> str:
    """Arrow has several types for one of Delta's."""
    return str(kind).replace("large_", "").replace("_view", "").replace("date32[day]", "date")


def _with_new_columns(place: Place, handle: DeltaTable, kind: Kind) -> DeltaTable:
    found = _arrow_fields(handle)
    missing = [field for field in kind.schema if field.name not in found and field.nullable]
    if not missing:
        return handle
    with suppress(ColdConflict), speaking_of(f"cannot add columns to {place.uri}"):
        handle.alter.add_columns(list(Schema.from_arrow(pa.schema(missing)).fields))
    return _read(place)


def _data_file(row: Mapping[str, Any], kind: Kind) -> DataFile:
    """Without statistics a file may hold anything."""

    def bound(name: str, otherwise: int) -> int:
        value = row.get(name)
        return otherwise if value is None else int(value)

    return DataFile(
        unquote(row["path"]),
        row["size_bytes"],
        bound("num_records", -1),
        bound("min.partition", 0),
        bound("max.partition", 2**31 - 1),
        bound("min.offset", 0),
        bound("max.offset", 2**63 - 1),
        {name: row[f"partition.{name}"] for name in kind.partitioned_by},
    )
