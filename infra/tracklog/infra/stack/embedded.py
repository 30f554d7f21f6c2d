"""A Redis that lives exactly as long as a block of code: for `tracklog demo` and other one-process runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracklog.infra.stack.valkey_server import ValkeyServer


@contextmanager
def embedded_redis(home: Path) -> Iterator[str]:
    """Starts a server with its data in `home` and gives its URL; stops it at the end of the block.

    It ends too when this process is killed: see `watchdog.py`. Raises StackError when no server is installed.
    """
    server = ValkeyServer(home, lifetime="parent")
    try:
        yield server.start()
    finally:
        server.stop()
