"""Where tables lie: a directory of this machine or a prefix of an object store, and how a file gets there whole.

Nothing in delta-rs syncs a local disk. So files are staged here (synced, under names that nobody else has) before a
commit names them, and what the commit wrote is synced before its rows count as exported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tracklog.infra.blob_directory import BlobDirectory
from tracklog.infra.blob_objects import BlobObjects
from tracklog.infra.cold.faults import speaking_of
from tracklog.infra.durable_files import make_durable_directory, sync_directory, sync_file
from tracklog.schemas.errors import ColdRefused

__all__ = ["Place"]

LOG: Final = "_delta_log"
PROBE: Final = "_tracklog/conditional-put"
RETRIES_MAX: Final = 10
"""Of one request to an object store, within the time-out: enough where every second one fails."""
TEXT_BYTES_MAX: Final = 64 * 1024
PARQUET: Final = "application/vnd.apache.parquet"


class Place:
    """One table's folder. `uri` is as given, with the table's name; it carries no secret."""

    def __init__(self, uri: str, options: Mapping[str, str], timeout_s: float) -> None:
        self.uri = uri
        self._timeout_s = timeout_s
        self._options = dict(options)
        self.folder = _folder_of(uri)
        """The directory, None in an object store."""
        self._files: BlobDirectory | BlobObjects
        if self.folder is not None:
            self._files = BlobDirectory(self.folder, what="file", setting="cold.url")
        else:
            with speaking_of(f"cannot open {uri}"):
                self._files = BlobObjects(uri, options, timeout_s, what="file", section="cold")

    @property
    def storage_options(self) -> dict[str, str]:
        """For deltalake. Never print them."""
        if self.folder is not None:
            return {}
        bound = f"{self._timeout_s:g}s"
        return {"timeout": bound, "retry_timeout": bound, "max_retries": str(RETRIES_MAX), **self._options}

    def prepare(self) -> None:
        """Before a table is made: the folder, or that the store can hold one. Raises ColdRefused, ColdMissing."""
        with speaking_of(f"cannot make a table in {self.uri}"):
            if self.folder is not None:
                _make(self.folder / LOG)
                return
            assert isinstance(self._files, BlobObjects)
            if not self._files.refuses_second(PROBE):
                raise ColdRefused(
                    f"{self.uri}: the store writes a key a second time though it was told not to",
                    hint="commits of several exporters rest on conditional puts (If-None-Match): use another store",
                )

    def stage(self, path: str, data: bytes) -> None:
        """Writes a file that is whole and durable before this returns. Raises ColdError."""
        with speaking_of(f"cannot write {self.uri}/{path}"):
            self._files.write(path, data, PARQUET)

    def create(self, path: str, data: bytes) -> bool:
        """Of an object store: a key that nobody else can create; False when it is there."""
        assert isinstance(self._files, BlobObjects)
        with speaking_of(f"cannot write {self.uri}/{path}"):
            return self._files.create(path, data)

    def text(self, path: str) -> str:
        """A small file; empty when it is gone."""
        with speaking_of(f"cannot read {self.uri}/{path}"):
            return (self._files.read(path, TEXT_BYTES_MAX) or b"").decode(errors="replace")

    def remove(self, path: str) -> None:
        """Removes a file, if it is there."""
        with speaking_of(f"cannot remove {self.uri}/{path}"):
            if self.folder is not None:
                (self.folder / path).unlink(missing_ok=True)
            else:
                assert isinstance(self._files, BlobObjects)
                self._files.remove(path)

    def sync_files(self, paths: Iterable[str]) -> None:
        """Makes durable what deltalake wrote into a local disk: files, and the folders that name them."""
        if self.folder is None:
            return
        with speaking_of(f"cannot sync {self.uri}"):
            folders = {self.folder}
            for path in paths:
                file = self.folder / path
                sync_file(file)
                folders.update(one for one in file.parents if self.folder in one.parents)
            for folder in folders:
                sync_directory(folder)

    def sync_log(self, versions: range) -> None:
        """Makes durable what commits wrote, on a local disk: theirs, and others' below ours."""
        if self.folder is None:
            return
        log = self.folder / LOG
        with speaking_of(f"cannot sync {log}"):
            for version in versions:
                sync_file(log / f"{version:020}.json")
                if sync_file(log / f"{version:020}.checkpoint.parquet"):
                    sync_file(log / "_last_checkpoint")
            sync_directory(log)


def _make(folder: Path) -> None:
    try:
        make_durable_directory(folder)
    except FileNotFoundError as error:  # of a file system that has no directories of anybody's, such as /proc
        raise ColdRefused(
            f"cannot make a table in {folder.parent}: no directory can be made there", hint="name another address"
        ) from error


def _folder_of(uri: str) -> Path | None:
    if uri.startswith("file://"):
        return Path(unquote(urlsplit(uri).path))
    return None if "://" in uri else Path(uri)
