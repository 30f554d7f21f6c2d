"""A broker that takes signed tokens (SASL/OAUTHBEARER over TLS): who has signed them it reads from a file of keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from joserfc.jwk import ECKey

from tests.support.secured import Secured, SecuredServer, certificate
from tracklog.infra.stack.kafka_server import QUICK_START, KafkaNode
from tracklog.infra.stack.ports import LOOPBACK

__all__ = ["AUDIENCE", "ISSUER", "TokenBroker", "own_key", "token_broker"]

AUDIENCE: Final = "kafka"
ISSUER: Final = "https://tokens.example"
SESSION_MS_MAX: Final = 3_600_000
"""A connection lives no longer than its token in any case; this switches that on."""
_VALIDATOR: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_LOGIN: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
_ALLOWED: Final = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="


class TokenBroker(SecuredServer):
    """Its listener for clients asks for a token, and ends a connection with it."""

    def __init__(self, home: Path, libs: Path, certified: Path, keys: Path) -> None:
        super().__init__(home, libs, certified)
        self._keys = keys.as_uri()
        self._jvm_flags = (*QUICK_START, f"{_ALLOWED}{self._keys}")

    def _settings(self, node: KafkaNode) -> dict[str, str]:
        kept = {name: value for name, value in super()._settings(node).items() if "scram" not in name}
        listener = "listener.name.clients"
        return {
            **kept,
            f"{listener}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{listener}.oauthbearer.sasl.jaas.config": _LOGIN,
            f"{listener}.oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
            f"{listener}.oauthbearer.connections.max.reauth.ms": str(SESSION_MS_MAX),
            f"{listener}.sasl.oauthbearer.jwks.endpoint.url": self._keys,
            f"{listener}.sasl.oauthbearer.expected.audience": AUDIENCE,
            f"{listener}.sasl.oauthbearer.expected.issuer": ISSUER,
        }


def own_key(folder: Path) -> Path:
    """A private key to sign tokens with, new, in a file."""
    path = folder / "signing.json"
    path.write_text(json.dumps(ECKey.generate_key("P-256", {"kid": path.parent.name}).as_dict(private=True)))
    return path


@contextmanager
def token_broker(folder: Path, libs: Path, signing: Path) -> Iterator[Secured]:
    """A broker that believes what that key has signed; with nobody who is allowed anything yet."""
    authority, certified = certificate(folder)
    keys = folder / "keys.json"
    public = ECKey.import_key(json.loads(signing.read_text())).as_dict(private=False)
    keys.write_text(json.dumps({"keys": [public]}))
    server = TokenBroker(folder / "kafka", libs, certified, keys)
    try:
        inner = server.start()
        yield Secured(f"kafka://{LOOPBACK}:{server.outer}", authority, AdminClient({"bootstrap.servers": inner}))
    finally:
        server.kill()
