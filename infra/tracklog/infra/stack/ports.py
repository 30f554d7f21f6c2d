"""Free TCP ports on the loopback address."""

from __future__ import annotations

import socket
from itertools import islice
from typing import Final

from tracklog.infra.clock import SystemEntropy
from tracklog.schemas.errors import StackError

LOOPBACK: Final = "127.0.0.1"
FIRST_PORT: Final = 20_000
LAST_PORT: Final = 32_000
"""Below Linux's ephemeral range: no outgoing connection takes the port of a server that is restarting."""
TRIES_MAX: Final = 500


def port_is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Distinct ports that nobody listens on now. Another process may still be quicker: callers try again."""
    span = LAST_PORT - FIRST_PORT
    start = int.from_bytes(SystemEntropy().nonce())  # two processes that look at once look in different places
    candidates = (FIRST_PORT + (start + step) % span for step in range(TRIES_MAX))
    found = list(islice((port for port in candidates if port_is_free(port)), count))
    if len(found) == count:
        return found
    raise StackError(f"no {count} free TCP ports found between {FIRST_PORT} and {LAST_PORT} on {LOOPBACK}")
