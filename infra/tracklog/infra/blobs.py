"""The blob store: bytes named by their own SHA-256 (DESIGN §4).

Bodies too large for an event, prompt templates and tool schemas go here *before* the event that names them,
so `put` returns only when the bytes would survive a power cut. A blob is never changed and never moved: any
number of processes may put the same content at once.

Blobs that nobody names are collected (`consumers/collecting`). A collector goes by age, so a put makes what is there
young again. And it lays blobs aside before it removes them: what is asked for is found there too, so whoever put one in
the very moment in which it was laid aside loses nothing.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol, Self
from urllib.parse import unquote, urlsplit

from tracklog.infra.blob_directory import BlobDirectory
from tracklog.infra.blob_objects import BlobObjects
from tracklog.schemas.errors import BlobAltered, BlobError, BlobMissing, BlobTooLarge

__all__ = ["BLOB_BYTES_MAX", "YOUNG_S", "BlobStore", "StoredBlob", "check_size", "hash_of", "open_blobs"]

BLOB_BYTES_MAX: Final = 64 * 1024 * 1024
"""One blob is held in memory whole, by the writer and by each reader."""
RECENT_PUTS_MAX: Final = 4096
"""Hashes remembered as stored, 64 bytes each: a prompt shared by every run is written once a process."""

YOUNG_S: Final = 3600.0
"""How long a process relies on having put a blob. A collector's grace is longer by far: what is named soon after it was
put is then never old."""
PUT: Final = "sha256"
ASIDE: Final = "aside"
"""The folders of blobs, and of those that a collector has laid aside."""
CLOCK: Final = "clock/of/store"

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


class StoredBlob(NamedTuple):
    """`put_us`: when it was put, or laid aside, by the store's clock; microseconds since 1970 UTC."""

    hash: str
    size_bytes: int
    put_us: int


class Place(Protocol):
    """Where the bytes lie, by key. Errors are BlobError, saying what happened to what."""

    def read(self, key: str, bytes_max: int) -> bytes | None: ...

    def write(self, key: str, data: bytes, media_type: str) -> None: ...

    def has(self, key: str) -> bool: ...

    def listed(self, folder: str) -> Iterator[tuple[str, int, int]]:
        """(key, bytes, microseconds since 1970 UTC at which it was written) of all below a folder."""

    def move(self, key: str, to: str) -> None:
        """Also when it is there already. It is written now; a crash half way leaves both. Nothing when it is gone."""

    def remove(self, key: str) -> None:
        """Nothing when it is gone."""


class BlobStore:
    """Content-addressed bytes. Thread-safe."""

    def __init__(self, place: Place, url: str) -> None:
        self._place = place
        self._url = url
        self._recent: OrderedDict[str, float] = OrderedDict()
        self._lock = threading.Lock()
        self._behind: BlobStore | None = None

    def or_else(self, other: BlobStore) -> Self:
        """This store, which gives what it does not have from another one."""
        self._behind = other
        return self

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
        key = self.ref(digest)
        data = self._place.read(key, BLOB_BYTES_MAX)
        if data is None:
            data = self._place.read(_aside(digest), BLOB_BYTES_MAX)
        if data is None:
            data = self._place.read(key, BLOB_BYTES_MAX)  # it was taken back in between
        if data is None and self._behind is not None:
            return self._behind.get(digest)
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
        key = self.ref(digest)
        return self._place.has(key) or self._place.has(_aside(digest)) or self._place.has(key)

    def stored(self, *, aside: bool = False) -> Iterator[StoredBlob]:
        """All blobs that are there, or all that are laid aside. Raises BlobError."""
        for key, size_bytes, put_us in self._place.listed(ASIDE if aside else PUT):
            digest = "".join(key.split("/")[1:])
            if _HASH.match(digest):
                yield StoredBlob(digest, size_bytes, put_us)

    def now_us(self) -> int:
        """The time by the clock that blobs are dated with, which may be a day from this machine's. Writes a file."""
        self._place.remove(CLOCK)
        self._place.write(CLOCK, b"now", "")
        return max(at for key, _, at in self._place.listed(CLOCK.partition("/")[0]) if key == CLOCK)

    def lay_aside(self, digest: str) -> None:
        """Takes a blob out of the way; it can still be read. A crash half way leaves it in both places."""
        with self._lock:
            self._recent.pop(digest, None)
        self._place.move(self.ref(digest), _aside(digest))

    def take_back(self, digest: str) -> None:
        """Puts a blob back that was laid aside."""
        self._place.move(_aside(digest), self.ref(digest))

    def remove_aside(self, digest: str) -> None:
        """Removes a blob that was laid aside, for good."""
        self._place.remove(_aside(digest))

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
            at = self._recent.get(digest)
            if at is None or time.monotonic() - at > YOUNG_S:
                return False
            self._recent.move_to_end(digest)
            return True

    def _remember(self, digest: str) -> None:
        with self._lock:
            self._recent[digest] = time.monotonic()
            if len(self._recent) > RECENT_PUTS_MAX:
                self._recent.popitem(last=False)


def _key(digest: str) -> str:
    return f"{PUT}/{digest[:2]}/{digest[2:]}"


def _aside(digest: str) -> str:
    return f"{ASIDE}/{digest[:2]}/{digest[2:]}"
