"""Connecting to Redis or Valkey, checking that it is safe to keep views in, and naming what went wrong.

With the script helpers this is the only module that knows the redis library (DESIGN §2). Passwords never
reach an error: addresses are built from host and port, not from the URL that was given.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import redis
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    SlotNotCoveredError,
    TimeoutError,
    TryAgainError,
)
from redis.retry import Retry

from tracklog.infra.redis_sentinel import SENTINEL_SCHEMES, connected_by_sentinels, described
from tracklog.schemas.errors import SettingsError, StoreError, StoreUnavailable, StoreUnsafe

__all__ = ["SAFE_POLICY", "RedisClient", "address_of", "check_safe", "connect", "store_errors"]

RedisClient = redis.Redis | RedisCluster

SAFE_POLICY: Final = "noeviction"
CLUSTER_SCHEMES: Final = {"redis+cluster": "redis", "rediss+cluster": "rediss"}
SCHEMES: Final = ("redis", "rediss", "unix", *CLUSTER_SCHEMES, *SENTINEL_SCHEMES)
RETRIES: Final = 2
"""Tries after the first, for a connection that broke or timed out. A command may then have run twice, so every
write of ours is a script guarded by the stored offset (DESIGN §10): a second run changes nothing."""
RETRY_BASE_S: Final = 0.05
RETRY_CAP_S: Final = 0.5
IDLE_CHECK_S: Final = 30
"""A connection idle for this long is asked for a PONG before it is used: firewalls drop them in silence."""

UNAVAILABLE: Final = (
    ConnectionError,
    TimeoutError,
    BusyLoadingError,
    ClusterDownError,
    SlotNotCoveredError,
    ReadOnlyError,  # a replica after a failover: the client must find the new primary
    TryAgainError,
)
TAKES_NO_WRITES: Final = re.compile(r"(?:^|caused error: |: -)(?:MISCONF|NOREPLICAS|OOM) ")
"""Servers that serve again by themselves once somebody has given them room: a disk that is full or cannot be written,
too few replicas, no memory. A pipeline puts its own words before; so do older servers where a script fails."""
REFUSED: Final = (AuthenticationError, AuthorizationError, NoPermissionError)


def connect(
    url: str, *, timeout_s: float, retries: int = RETRIES, client_name: str = "tracklog", check: bool = True
) -> RedisClient:
    """A connected client for `redis://`, `rediss://`, `unix://`, and for a cluster or behind sentinels
    `redis+cluster://` and `redis+sentinel://` (with TLS `rediss+...`).

    `timeout_s` bounds each wait for the server. Nothing is tried again once a call has taken that long, so a call ends
    within twice `timeout_s`: what broke just before the bound has one more wait. (A cluster's client tries its other
    nodes too.) Answers are bytes. With `check`, asks for a PONG and for a safe eviction policy first.

    Raises SettingsError (no such scheme, an option that cannot be set), StoreUnavailable, StoreError (refused),
    StoreUnsafe.
    """
    client = _client(url, timeout_s, retries, client_name)
    if check:
        with store_errors(client):
            client.ping()
        check_safe(client)
    return client


class BoundedRetry(Retry):
    """Tries again until a call has taken `bound_s`. The library calls it within itself (a command's tries contain
    those of connecting), which would multiply the tries: only the outermost one counts.

    Each connection has a copy of its own, and one thread at a time.
    """

    def __init__(self, retries: int, bound_s: float) -> None:
        super().__init__(ExponentialBackoff(cap=RETRY_CAP_S, base=RETRY_BASE_S), retries)
        self._bound_s = bound_s
        self._inside = False

    def call_with_retry(self, do: Any, fail: Any, is_retryable: Any = None, with_failure_count: bool = False) -> Any:
        if self._inside:
            return Retry(NoBackoff(), 0).call_with_retry(do, fail, is_retryable, with_failure_count)
        deadline_s = time.monotonic() + self._bound_s

        def failed(error: Exception, failures: int) -> None:
            if with_failure_count:
                fail(error, failures)
            else:
                fail(error)
            if time.monotonic() >= deadline_s:
                raise error

        self._inside = True
        try:
            return super().call_with_retry(do, failed, is_retryable, with_failure_count=True)
        finally:
            self._inside = False


def _client(url: str, timeout_s: float, retries: int, client_name: str) -> RedisClient:
    scheme = url.partition("://")[0]
    if scheme not in SCHEMES:
        raise SettingsError(
            f"unknown Redis scheme {scheme[:20]!r}", hint=f"use one of {', '.join(f'{name}://' for name in SCHEMES)}"
        )
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "health_check_interval": IDLE_CHECK_S,
        "retry": BoundedRetry(retries, timeout_s),
        "client_name": client_name,
        "protocol": 2,  # the same answers from every server, and no handshake that proxies may not know
        "decode_responses": False,
    }
    _check_options(url, options)
    url = CLUSTER_SCHEMES.get(scheme, scheme) + url[len(scheme) :]
    try:
        if scheme in SENTINEL_SCHEMES:
            return connected_by_sentinels(url, options)
        client = redis.Redis.from_url(url, retry_on_error=[ConnectionError, TimeoutError], **options)
        client.connection_pool.make_connection()  # reads the options now, and connects to nothing
        return _cluster(url, options) if scheme in CLUSTER_SCHEMES else client
    except ValueError as error:
        raise _unusable(scheme) from _without_text(error)
    except (TypeError, AttributeError) as error:
        raise _unknown_option(url) from _without_text(error)


def _check_options(url: str, ours: Mapping[str, object]) -> None:
    """What we set ourselves cannot be set in the address: time-outs come from `redis.timeout_s`."""
    taken = sorted(ours.keys() & _option_names(url))
    if taken:
        raise SettingsError(
            f"the address of Redis sets {', '.join(taken)}, which cannot be set there",
            hint="take it out of redis.url; redis.timeout_s sets the time-outs",
        )


def _option_names(url: str) -> set[str]:
    return {name for name, _ in parse_qsl(url.partition("?")[2], keep_blank_values=True)}


def _unknown_option(url: str) -> SettingsError:
    """Names are shown unless the query may be the end of a password that was not percent-encoded."""
    names = "" if "@" in url.partition("?")[2] else ", ".join(sorted(_option_names(url)))
    return SettingsError(
        f"an option in the address of Redis is unknown or unusable: one of {names or 'those after the `?`'}",
        hint="take it out of redis.url; `db` and the ssl_* options of the redis library are known",
    )


def _cluster(url: str, options: dict[str, Any]) -> RedisCluster:
    """Unlike the others it asks the cluster for its slots at once, so it fails here when nobody answers."""
    parts = urlsplit(url)
    with _named(f"{parts.hostname}:{parts.port or 6379}"):
        return RedisCluster.from_url(url, **options)


def _unusable(scheme: str) -> SettingsError:
    return SettingsError(
        f"the {scheme}:// address of Redis cannot be read",
        hint="percent-encode special characters of the password; the port is a number, the database too",
    )


def _without_text(error: Exception) -> Exception:
    """The kind of error without its words: `urllib` quotes the part of the URL that it took for the port."""
    return type(error)("(text withheld: it may quote a password)")


def address_of(client: RedisClient) -> str:
    """Where a client connects to, without secrets."""
    if isinstance(client, RedisCluster):
        nodes: list[Any] = client.get_nodes()  # type: ignore[no-untyped-call]
        return ", ".join(sorted(str(node.name) for node in nodes))
    by_sentinels = described(client)
    if by_sentinels is not None:
        return by_sentinels
    options = client.connection_pool.connection_kwargs
    path = options.get("path")
    return str(path) if path is not None else f"{options.get('host')}:{options.get('port')}"


@contextmanager
def store_errors(client: RedisClient) -> Iterator[None]:
    """Every error of the redis library inside the block leaves it as a StoreError that names the address."""
    with _named(address_of(client)):
        yield


@contextmanager
def _named(address: str) -> Iterator[None]:
    try:
        yield
    except (RedisError, RedisClusterException) as error:
        raise _translated(address, error) from error


def _translated(address: str, error: Exception) -> StoreError:
    # The cluster client wraps what the last node said in an exception outside of the tree.
    reason = error.__cause__ if isinstance(error, RedisClusterException) and error.__cause__ is not None else error
    if isinstance(reason, REFUSED):
        return StoreError(f"Redis at {address} refuses us: {error}", hint="check the user, its password and its ACL")
    if isinstance(reason, UNAVAILABLE):
        return StoreUnavailable(
            f"Redis at {address} does not serve: {error}", hint="is it running and reachable? see redis.url"
        )
    if isinstance(reason, OutOfMemoryError):
        return StoreUnavailable(
            f"Redis at {address} is full: {error}", hint="raise its maxmemory, or keep fewer events"
        )
    if TAKES_NO_WRITES.search(str(reason)):
        return StoreUnavailable(
            f"Redis at {address} takes no writes: {error}",
            hint="give its disk room, or what else it names: then it goes on by itself",
        )
    return StoreError(f"Redis at {address}: {error}")


def check_safe(client: RedisClient) -> None:
    """Raises StoreUnsafe unless every server keeps what it is given: an evicted view is silently wrong."""
    for node in _servers(client):
        with store_errors(client):
            policy = _eviction_policy(node)
        if policy != SAFE_POLICY:
            found = f"has maxmemory-policy {policy}" if policy else "does not tell its maxmemory-policy"
            raise StoreUnsafe(
                f"Redis at {address_of(node)} {found}; it may drop keys when memory runs out",
                hint=f"CONFIG SET maxmemory-policy {SAFE_POLICY}, or set it in the service's console",
            )


def _servers(client: RedisClient) -> list[redis.Redis]:
    if isinstance(client, RedisCluster):
        primaries: list[Any] = client.get_primaries()  # type: ignore[no-untyped-call]
        return [client.get_redis_connection(node) for node in primaries]
    return [client]


def _eviction_policy(server: redis.Redis) -> str | None:
    """Managed services often refuse CONFIG; most of them still say it in INFO."""
    try:
        policy = _texts(server.config_get("maxmemory-policy")).get("maxmemory-policy")
    except ResponseError:
        policy = None
    return policy or _texts(server.info("memory")).get("maxmemory_policy")


def _texts(answer: Any) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in answer.items()}


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
