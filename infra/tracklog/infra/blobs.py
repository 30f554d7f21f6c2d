"""The blob store: bytes named by their own SHA-256 (DESIGN §4).

Bodies too large for an event, prompt templates and tool schemas go here *before* the event that names them,
so `put` returns only when the bytes would survive a power cut. A blob is never changed and never moved: any
number of processes may put the same content at once.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from tracklog.infra.blob_directory import BlobDirectory
from tracklog.infra.blob_objects import BlobObjects
from tracklog.schemas.errors import BlobAltered, BlobError, BlobMissing, BlobTooLarge

__all__ = ["BLOB_BYTES_MAX", "BlobStore", "check_size", "hash_of", "open_blobs"]

BLOB_BYTES_MAX: Final = 64 * 1024 * 1024
"""One blob is held in memory whole, by the writer and by each reader."""
RECENT_PUTS_MAX: Final = 4096
"""Hashes remembered as stored, 64 bytes each: a prompt shared by every run is written once a process."""

_HASH = re.compile(r"[0-9a-f]{64}\Z")


def hash_of(data: bytes) -> str:
    """The name of these bytes: lower-case hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def check_size(size_bytes: int) -> None:
    """BlobTooLarge when so many bytes are too many for one blob."""
    if size_bytes > BLOB_BYTES_MAX:
        raise BlobTooLarge(
            f"blob of {size_bytes} bytes is larger than BLOB_BYTES_MAX={BLOB_BYTES_MAX}",
            hint="store it elsewhere and record its address",
        )


def open_blobs(url: str, *, options: Mapping[str, str] | None = None, timeout_s: float = 60.0) -> BlobStore:
    """Opens the store at a directory (`PATH`, `file:///PATH`), `s3://`, `gs://` or `memory://`.

    Creates nothing and asks nobody until the first `put`. `options` are obstore's (region, endpoint, keys);
    `timeout_s` bounds one request with its retries. Raises BlobError when the address cannot be understood.
    """
    if "://" not in url:
        return BlobStore(BlobDirectory(Path(url)), url)
    if url.startswith("file://"):
        return BlobStore(BlobDirectory(Path(unquote(urlsplit(url).path))), url)
    return BlobStore(BlobObjects(url, options or {}, timeout_s), url)


class Place(Protocol):
    """Where the bytes lie, by key. Errors are BlobError, saying what happened to what."""

    def read(self, key: str, bytes_max: int) -> bytes | None: ...

    def write(self, key: str, data: bytes, media_type: str) -> None: ...

    def has(self, key: str) -> bool: ...


class BlobStore:
    """Content-addressed bytes. Thread-safe."""

    def __init__(self, place: Place, url: str) -> None:
        self._place = place
        self._url = url
        self._recent: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return self._url

    def put(self, data: bytes, *, media_type: str = "") -> str:
        """Stores the bytes durably and returns their hash; the same content again is the same blob.

        `media_type` (e.g. `application/json`) is kept by object stores and ignored by a directory. Raises
        BlobTooLarge, and BlobError when the place is full, read-only or does not answer.
        """
        check_size(len(data))
        digest = hash_of(data)
        if not self._was_put(digest):
            self._place.write(_key(digest), data, media_type)
            self._remember(digest)
        return digest

    def get(self, digest: str) -> bytes:
        """The bytes of that hash, checked against it. Raises BlobMissing, BlobAltered, BlobError."""
        data = self._place.read(self.ref(digest), BLOB_BYTES_MAX)
        if data is None:
            raise BlobMissing(f"blob {digest} is not in {self._url}", hint="was it written to another store?")
        if hash_of(data) != digest:
            raise BlobAltered(
                f"blob {digest} in {self._url} has other bytes than its name says",
                hint="restore it from a backup, or put the original content again",
            )
        return data

    def has(self, digest: str) -> bool:
        """Whether a blob of that name is there; its bytes are not read."""
        return self._place.has(self.ref(digest))

    def ref(self, digest: str) -> str:
        """Where the blob lies inside its store, e.g. `sha256/ab/cdef...`: the pointer that events carry.

        It says nothing of the store's address, so a store can be moved without touching an event.
        Raises BlobError when `digest` is no lower-case hexadecimal SHA-256.
        """
        if not _HASH.match(digest):
            raise BlobError(f"{digest!r} is no blob hash; it takes 64 lower-case hexadecimal digits")
        return _key(digest)

    def _was_put(self, digest: str) -> bool:
        with self._lock:
            if digest not in self._recent:
                return False
            self._recent.move_to_end(digest)
            return True

    def _remember(self, digest: str) -> None:
        with self._lock:
            self._recent[digest] = None
            if len(self._recent) > RECENT_PUTS_MAX:
                self._recent.popitem(last=False)


def _key(digest: str) -> str:
    return f"sha256/{digest[:2]}/{digest[2:]}"
