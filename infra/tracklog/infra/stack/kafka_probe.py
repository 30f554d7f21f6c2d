"""Asks a broker who is in its cluster: a real Metadata request (v1) over a plain socket, without any client.

The stack starts brokers; it must not depend on the client library that the log adapter owns.
"""

from __future__ import annotations

import socket
import struct
from typing import Final

METADATA: Final = (3, 1)
CORRELATION_ID: Final = 7
CLIENT_ID: Final = b"tracklog-probe"
ANSWER_BYTES_MAX: Final = 1 << 20


def brokers_of(host: str, port: int, timeout_s: float) -> frozenset[int]:
    """Ids of the brokers in service, as this one sees them. Raises OSError when it does not answer so."""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        header = struct.pack(">hhih", *METADATA, CORRELATION_ID, len(CLIENT_ID)) + CLIENT_ID
        no_topics = struct.pack(">i", 0)
        connection.sendall(struct.pack(">i", len(header) + len(no_topics)) + header + no_topics)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        if not 8 <= size <= ANSWER_BYTES_MAX:
            raise OSError(f"{host}:{port} does not speak Kafka")
        return _broker_ids(_exactly(connection, size))


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            raise OSError("connection closed in the middle of an answer")
        parts += part
    return bytes(parts)


def _broker_ids(answer: bytes) -> frozenset[int]:
    correlation, count = struct.unpack_from(">ii", answer, 0)
    if correlation != CORRELATION_ID:
        raise OSError("answer to a question that was not asked")
    ids: set[int] = set()
    at = 8
    for _ in range(count):
        node_id, host_size = struct.unpack_from(">ih", answer, at)
        at += 6 + host_size + 4
        (rack_size,) = struct.unpack_from(">h", answer, at)
        at += 2 + max(rack_size, 0)
        ids.add(node_id)
    return frozenset(ids)
