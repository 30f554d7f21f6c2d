"""A broker that asks who somebody is (SASL/SCRAM over TLS) and allows what its standard authorizer was told to allow.

The listener without TLS is for its own administration: whoever comes that way is its superuser.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tracklog.infra.acls import rules_of
from tracklog.infra.stack.kafka_server import QUICK_START, KafkaNode, KafkaServer
from tracklog.infra.stack.ports import LOOPBACK, free_ports
from tracklog.schemas.topics import Topics

ITERATIONS = 4096
ADMIN_S = 30.0
VALID = dt.timedelta(days=1)
_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Alter": AclOperation.ALTER,
    "AlterConfigs": AclOperation.ALTER_CONFIGS,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


class Secured(NamedTuple):
    """`url`: of the listener for clients. `authority`: the file with the certificate that they are to trust."""

    url: str
    authority: Path
    admin: AdminClient

    def environment(self, user: str) -> dict[str, str]:
        """What a client sets to come as that user."""
        return {
            "TRACKLOG_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "TRACKLOG_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
            "TRACKLOG_KAFKA_SASL_USERNAME": user,
            "TRACKLOG_KAFKA_SASL_PASSWORD": password_of(user),
            "TRACKLOG_KAFKA_SSL_CA_LOCATION": str(self.authority),
        }

    def add_users(self, users: Iterable[str]) -> None:
        wanted = [
            UserScramCredentialUpsertion(
                user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS), password_of(user).encode()
            )
            for user in users
        ]
        for future in self.admin.alter_user_scram_credentials([*wanted]).values():
            future.result(ADMIN_S)

    def allow(self, user: str, role: str, topics: Topics, *, but: tuple[str, str] = ("", "")) -> None:
        """What the role needs; `but` one operation on what has that name."""
        bindings = [
            AclBinding(
                ResourceType.TOPIC if rule.resource == "topic" else ResourceType.GROUP,
                rule.name,
                ResourcePatternType.PREFIXED if rule.prefixed else ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                _OPERATIONS[one],
                AclPermissionType.ALLOW,
            )
            for rule in rules_of(role, topics)
            for one in rule.operations
            if (rule.name, one) != but
        ]
        for future in self.admin.create_acls(bindings).values():
            future.result(ADMIN_S)


def password_of(user: str) -> str:
    return f"of-{user}"


class SecuredServer(KafkaServer):
    """One broker with a listener for clients beside its own."""

    def __init__(self, home: Path, libs: Path, certified: Path) -> None:
        super().__init__(home, libs, jvm_flags=QUICK_START)
        self._certified = certified
        (self.outer,) = free_ports(1)

    def _settings(self, node: KafkaNode) -> dict[str, str]:
        kept = super()._settings(node)
        clients = f"CLIENTS://{LOOPBACK}:{self.outer}"
        return {
            **kept,
            "listeners": f"{kept['listeners']},{clients}",
            "advertised.listeners": f"{kept['advertised.listeners']},{clients}",
            "listener.security.protocol.map": f"{kept['listener.security.protocol.map']},CLIENTS:SASL_SSL",
            "listener.name.clients.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.clients.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.clients.ssl.keystore.type": "PEM",
            "listener.name.clients.ssl.keystore.location": str(self._certified),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "false",
        }


@contextmanager
def secured(folder: Path, libs: Path) -> Iterator[Secured]:
    """A broker with nobody who is allowed anything yet."""
    authority, certified = certificate(folder)
    server = SecuredServer(folder / "kafka", libs, certified)
    try:
        inner = server.start()
        yield Secured(f"kafka://{LOOPBACK}:{server.outer}", authority, AdminClient({"bootstrap.servers": inner}))
    finally:
        server.kill()


def certificate(folder: Path) -> tuple[Path, Path]:
    """(its certificate, its key and certificate), of a server at 127.0.0.1, signed by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID)
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    authority, both = folder / "authority.pem", folder / "server.pem"
    authority.write_bytes(made)
    both.write_bytes(private + made)
    return authority, both
