"""Blobs in S3, GCS or memory. The only module that imports `obstore`, once such a store is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from tracklog.infra.clock import SystemClock
from tracklog.schemas.errors import BlobAltered, BlobError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

RETRIES_MAX: Final = 3
REFRESH_S: Final = 1800.0
"""A blob that is put again is written again when it is older than this."""
_CLIENT_OPTIONS: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "root_certificate",
        "user_agent",
    }
)
"""Options of the HTTP client. Among the store's own options they make obstore 0.12 panic."""


class BlobObjects:
    """S3, GCS or memory, by obstore. A put is durable when the service has answered."""

    def __init__(
        self, url: str, options: Mapping[str, str], timeout_s: float, *, what: str = "blob", section: str = "blobs"
    ) -> None:
        """`what` and `section` are the words of its errors."""
        self._url = url
        self._what = what
        self._section = section
        self._store = _object_store(url, options, timeout_s)

    def read(self, key: str, bytes_max: int) -> bytes | None:
        from obstore import exceptions, get

        try:
            answer = get(self._store, key)
            if answer.meta["size"] > bytes_max:
                raise BlobAltered(f"blob {key} in {self._url} is larger than any blob can be")
            return bytes(answer.bytes())
        except FileNotFoundError:
            return None
        except (exceptions.BaseError, OSError) as error:
            raise self._error("read", key, error) from error

    def write(self, key: str, data: bytes, media_type: str) -> None:
        from obstore import exceptions, put

        attributes = {"Content-Type": media_type} if media_type else None
        try:
            put(self._store, key, data, attributes=attributes, mode="create", use_multipart=False)
        except exceptions.AlreadyExistsError:
            self._make_young(key, data, attributes)
        except exceptions.NotSupportedError:
            # A store without conditional writes: writing the same bytes over themselves does no harm.
            self._overwrite(key, data, attributes)
        except (exceptions.BaseError, OSError) as error:
            raise self._error("write", key, error) from error

    def has(self, key: str) -> bool:
        from obstore import exceptions, head

        try:
            head(self._store, key)
        except FileNotFoundError:
            return False
        except (exceptions.BaseError, OSError) as error:
            raise self._error("read", key, error) from error
        return True

    def create(self, key: str, data: bytes) -> bool:
        """Writes a key that is not there; False when it is. Raises BlobError, also where a store cannot tell."""
        from obstore import exceptions, put

        try:
            put(self._store, key, data, mode="create", use_multipart=False)
        except exceptions.AlreadyExistsError:
            return False
        except (exceptions.BaseError, OSError) as error:
            raise self._error("write", key, error) from error
        return True

    def refuses_second(self, key: str) -> bool:
        """Whether the store refuses to write a key that is there: what commits of several writers rest on.

        Writes the key, twice. Raises BlobError when the store cannot be used at all.
        """
        return not (self.create(key, key.encode()) and self.create(key, key.encode()))

    def remove(self, key: str) -> None:
        """Removes the key, if it is there."""
        from obstore import delete, exceptions

        try:
            delete(self._store, key)
        except FileNotFoundError:
            return
        except (exceptions.BaseError, OSError) as error:
            raise self._error("remove", key, error) from error

    def listed(self, folder: str) -> Iterator[tuple[str, int, int]]:
        from obstore import exceptions
        from obstore import list as list_

        try:
            for chunk in list_(self._store, prefix=f"{folder}/"):
                for one in chunk:
                    yield one["path"], one["size"], round(one["last_modified"].timestamp() * 1_000_000)
        except (exceptions.BaseError, OSError) as error:
            raise self._error("list", folder, error) from error

    def move(self, key: str, to: str) -> None:
        """A copy, then a removal: no store has more, and whoever reads finds one of the two."""
        from obstore import copy, exceptions

        try:
            copy(self._store, key, to)
        except FileNotFoundError:
            return
        except (exceptions.BaseError, OSError) as error:
            raise self._error("move", key, error) from error
        self.remove(key)

    def _make_young(self, key: str, data: bytes, attributes: dict[str, str] | None) -> None:
        """Writes an old one over itself, so that a collector sees that somebody needs it now."""
        from obstore import exceptions, head

        try:
            written = head(self._store, key)["last_modified"]
        except FileNotFoundError:
            self._overwrite(key, data, attributes)
            return
        except (exceptions.BaseError, OSError) as error:
            raise self._error("read", key, error) from error
        age_s = SystemClock().now_us() / 1e6 - written.timestamp()
        if not 0 <= age_s <= REFRESH_S:  # also where this machine's clock is wrong
            self._overwrite(key, data, attributes)

    def _overwrite(self, key: str, data: bytes, attributes: dict[str, str] | None) -> None:
        from obstore import exceptions, put

        try:
            put(self._store, key, data, attributes=attributes, mode="overwrite", use_multipart=False)
        except (exceptions.BaseError, OSError) as error:
            raise self._error("write", key, error) from error

    def _error(self, verb: str, key: str, error: Exception) -> BlobError:
        return BlobError(
            f"cannot {verb} {self._what} {key} in {self._url}: {_first_line(error)}",
            hint=f"check the address, [{self._section}.options] and the credentials",
        )


def _object_store(url: str, options: Mapping[str, str], timeout_s: float) -> ObjectStore:
    """A try and its retries share the bound: at worst a last try begins when the time for retries is over."""
    from obstore import exceptions
    from obstore.store import MemoryStore, from_url

    if url.startswith("memory://"):
        return MemoryStore()
    half = timedelta(seconds=timeout_s / 2)
    client: dict[str, object] = {"timeout": half}
    client |= {name: value for name, value in options.items() if name in _CLIENT_OPTIONS}
    config = {name: value for name, value in options.items() if name not in _CLIENT_OPTIONS}
    retry: dict[str, object] = {"max_retries": RETRIES_MAX, "retry_timeout": half}
    try:
        return from_url(url, config=cast(Any, config), client_options=cast(Any, client), retry_config=cast(Any, retry))
    except (exceptions.BaseError, OSError, ValueError) as error:
        raise BlobError(
            f"cannot open blob store {url}: {_first_line(error)}",
            hint="use a directory, file:///PATH, s3://, gs:// or memory://, and check [blobs.options]",
        ) from error


def _first_line(error: Exception) -> str:
    """obstore adds pages of debug output, which may quote options."""
    return str(error).partition("\n")[0].strip()
