"""Redis behind Sentinel: the client asks the sentinels who the primary is, whenever it connects.

    redis+sentinel://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...]/SERVICE[/DB][?OPTIONS]

Ports left out are 26379. User and password are the data servers'; the sentinels' own are the options
`sentinel_username` and `sentinel_password`. A failover may lose writes that were acknowledged: whoever writes here
guards its writes by the stored position (DESIGN §6), and so notices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

import redis
from redis.sentinel import Sentinel, SentinelConnectionPool

__all__ = ["SENTINEL_SCHEMES", "connected_by_sentinels", "described"]

SENTINEL_SCHEMES: Final = {"redis+sentinel": False, "rediss+sentinel": True}
"""Whether data servers and sentinels are spoken to under TLS."""
PORT: Final = 26379
_OWN: Final = ("sentinel_username", "sentinel_password")


class _Parts(NamedTuple):
    sentinels: list[tuple[str, int]]
    service: str
    db: int
    login: dict[str, str]
    sentinel_login: dict[str, str]
    options: dict[str, str]


def connected_by_sentinels(url: str, options: Mapping[str, Any]) -> redis.Redis:
    """A client of the service's primary; connects to nothing yet. Raises ValueError for an address that is none,
    TypeError for an option that no connection knows."""
    scheme, _, rest = url.partition("://")
    parts = _parts(rest)
    tls = {"ssl": True} if SENTINEL_SCHEMES[scheme] else {}
    sockets = {name: value for name, value in options.items() if name != "client_name"}
    found = Sentinel(parts.sentinels, sentinel_kwargs={**sockets, **tls, **parts.sentinel_login})  # type: ignore[no-untyped-call]
    kwargs = {**options, **parts.options, **parts.login, **tls, "db": parts.db}
    client: redis.Redis = found.master_for(parts.service, **kwargs)  # type: ignore[no-untyped-call]
    pool = client.connection_pool
    pool.connection_class(**pool.connection_kwargs)  # reads the options now
    return client


def described(client: redis.Redis) -> str | None:
    """Service and sentinels of a client that was made here, without secrets; None for another."""
    pool = client.connection_pool
    if not isinstance(pool, SentinelConnectionPool):
        return None
    nodes = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
    return f"{pool.service_name} by " + ", ".join(f"{node.get('host')}:{node.get('port')}" for node in nodes)


def _parts(rest: str) -> _Parts:
    place, _, query = rest.partition("?")
    place, _, path = place.partition("/")
    login, _, hosts = place.rpartition("@")
    service, _, db = path.partition("/")
    if not service or not hosts:
        raise ValueError("hosts or the service's name are missing")
    given = dict(parse_qsl(query, keep_blank_values=True))
    own = {name.removeprefix("sentinel_"): given.pop(name) for name in _OWN if name in given}
    user, _, password = login.partition(":")
    named = {"username": unquote(user), "password": unquote(password)}
    return _Parts(
        [_host(one) for one in hosts.split(",")],
        unquote(service),
        int(db or 0),
        {name: value for name, value in named.items() if value},
        own,
        given,
    )


def _host(text: str) -> tuple[str, int]:
    name, _, port = text.rpartition(":")
    return (name, int(port)) if name else (text, PORT)
