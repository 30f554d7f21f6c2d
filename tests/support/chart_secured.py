"""A release on services that ask who somebody is: a Kafka user for each role with the rights of `tracklog acls`, over
SASL/SCRAM and TLS, a Redis user with those of `tracklog acls --format redis`, over TLS, and an S3 store with keys.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import redis

from tests.conftest import ValkeyFactory
from tests.support.charts import over
from tests.support.redis_kinds import port_of
from tests.support.s3_server import BUCKET, s3_server
from tests.support.secured import Secured, certificate, password_of, secured
from tracklog.consumers.acl_formats import rendered, user_of
from tracklog.infra.acls import ROLES
from tracklog.infra.stack.ports import LOOPBACK
from tracklog.schemas.topics import Topics

__all__ = ["Guarded", "guarded", "port_in"]

STRANGER: Final = "stranger"
REDIS_PASSWORD: Final = "of-redis"
JOIN_S: Final = 10.0
PIPE_BYTES: Final = 65536
HERE: Final = [{"ipBlock": {"cidr": f"{LOOPBACK}/32"}}]
USER_OF: Final = {
    "agents": "owner",
    "tools": "dispatcher",
    "extraProcessors": "processor",
    "processors": "processor",
    "route": "router",
    "api": "api",
    "export": "exporter",
}
"""List or component of the values -> the role of `tracklog acls` whose user its pods come as."""


class Guarded(NamedTuple):
    """`secrets`: by name and key. `cold`: options by which a test reads the cold tier."""

    broker: Secured
    redis_url: str
    secrets: dict[str, dict[str, str]]
    cold: dict[str, str]

    @property
    def kafka_port(self) -> int:
        return port_in(self.broker.url)

    @property
    def redis_port(self) -> int:
        return port_in(self.redis_url)

    @property
    def store_port(self) -> int:
        return port_in(self.cold["endpoint"])

    @property
    def cold_url(self) -> str:
        return f"s3://{BUCKET}/cold"

    def values(self, plain: dict[str, Any], shop_url: str) -> dict[str, Any]:
        """The values of a plain release, with these services instead, and an exporter."""
        values = over(
            plain,
            kafka__bootstrapServers=self.broker.url.removeprefix("kafka://"),
            # a user without any right: each pod must come as its own
            kafka__sasl={"mechanism": "SCRAM-SHA-512", "existingSecret": _secret(STRANGER)},
            kafka__tls={"enabled": True, "caSecret": "kafka-ca"},
            topics__job={"kafkaSecret": _secret("admin")},
            upgradeCheck={"kafkaSecret": _secret("reader")},
            test={"kafkaSecret": _secret("owner")},
            redis={"url": self.redis_url, "existingSecret": "redis", "usernameKey": "username", "caSecret": "redis-ca"},
            blobs={
                "url": f"s3://{BUCKET}/blobs",
                "options": {name: self.cold[name] for name in ("endpoint", "region", "allow_http")},
                "existingSecret": "s3",
            },
            components__export={"enabled": True},
            networkPolicy={
                "kafka": {"to": HERE},
                "redis": {"to": HERE},
                "store": {"to": HERE, "ports": [self.store_port]},
                "dispatchEgress": [{"to": HERE, "ports": [{"port": port_in(shop_url), "protocol": "TCP"}]}],
            },
        )
        values["settings"] = {"cold.url": self.cold_url, "cold.age_s": 1}
        for name in ("processors", "route", "api", "export"):
            over(values, **{f"components__{name}__kafkaSecret": _secret(USER_OF[name])})
        for name in ("agents", "tools", "extraProcessors"):
            values[name] = [{**one, "kafkaSecret": _secret(USER_OF[name])} for one in values[name]]
        return values


def port_in(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


@contextmanager
def guarded(folder: Path, libs: Path, make: ValkeyFactory, prefix: str) -> Iterator[Guarded]:
    """The services, for an installation of that prefix."""
    topics = Topics(prefix)
    with secured(folder / "secured", libs) as broker, s3_server() as s3:
        broker.add_users([STRANGER, *(user_of(topics, role) for role in ROLES)])
        for role in ROLES:
            broker.allow(user_of(topics, role), role, topics)
        server = make(tcp=True, persistence="none")
        _protect(server.url, topics)
        authority, certified = certificate(folder / "redis-tls")
        with tls_front(port_of(server), certified) as port:
            url = f"rediss://{LOOPBACK}:{port}/0?ssl_ca_certs=/etc/tracklog/redis-tls/ca.crt"
            yield Guarded(broker, url, _secrets(broker, topics, authority, s3), s3)


def _secret(role: str) -> str:
    return f"kafka-{role}"


def _protect(url: str, topics: Topics) -> None:
    """One user with the rights that are printed for pods that write; the default one may do nothing without a word."""
    user = user_of(topics, "writer")
    (line,) = [line for line in rendered("redis", (), topics, {}).splitlines() if line.startswith(f"user {user} ")]
    _, name, *rights = line.split()
    rights = [f">{REDIS_PASSWORD}" if one.startswith("#") else one for one in rights]
    with redis.Redis.from_url(url) as admin:
        admin.execute_command("ACL", "SETUSER", name, *rights)
        admin.config_set("requirepass", "of-nobody")


def _secrets(broker: Secured, topics: Topics, redis_ca: Path, s3: dict[str, str]) -> dict[str, dict[str, str]]:
    users = {_secret(role): user_of(topics, role) for role in ROLES} | {_secret(STRANGER): STRANGER}
    return {
        "kafka-ca": {"ca.crt": broker.authority.read_text(encoding="ascii")},
        "redis": {"username": user_of(topics, "writer"), "password": REDIS_PASSWORD},
        "redis-ca": {"ca.crt": redis_ca.read_text(encoding="ascii")},
        "s3": {"access-key-id": s3["access_key_id"], "secret-access-key": s3["secret_access_key"]},
        **{name: {"username": user, "password": password_of(user)} for name, user in users.items()},
    }


@contextmanager
def tls_front(port: int, certified: Path) -> Iterator[int]:
    """The port of a front that speaks TLS and hands on in plain text: the server in the wheel was built without it."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certified)
    stop, started = asyncio.Event(), threading.Event()
    listening: list[tuple[asyncio.AbstractEventLoop, int]] = []

    async def serve() -> None:
        server = await asyncio.start_server(lambda r, w: _hand_on(port, r, w), LOOPBACK, 0, ssl=context)
        listening.append((asyncio.get_running_loop(), server.sockets[0].getsockname()[1]))
        started.set()
        await stop.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert started.wait(JOIN_S), "the front does not listen"
    [(loop, own)] = listening
    try:
        yield own
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(JOIN_S)


async def _hand_on(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    inner, outer = await asyncio.open_connection(LOOPBACK, port)
    await asyncio.gather(_pipe(reader, outer), _pipe(inner, writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.IncompleteReadError):  # whoever it was is gone
        while read := await reader.read(PIPE_BYTES):
            writer.write(read)
            await writer.drain()
    with suppress(OSError):
        writer.close()
