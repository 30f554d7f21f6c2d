"""A Redis that lives as long as somebody uses it: for one-process runs, and for a few commands at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tracklog.infra.stack.file_lock import file_lock
from tracklog.infra.stack.valkey_server import START_TIMEOUT_S, ValkeyServer
from tracklog.infra.stack.watchdog import STOP_GRACE_S

LOCK_TIMEOUT_S: Final = 2 * (START_TIMEOUT_S + STOP_GRACE_S)


@contextmanager
def embedded_redis(home: Path) -> Iterator[str]:
    """Gives the URL of the server whose data live in `home`; starts it when it does not run.

    Several processes share it, and it ends with the last of them, also when that one is killed (`watchdog.py`).
    Raises StackError when no server is installed or it does not start.
    """
    server = ValkeyServer(home, lifetime="shared")
    with file_lock(server.process.users_path, timeout_s=LOCK_TIMEOUT_S, shared=True):
        with file_lock(home / "start.lock", timeout_s=LOCK_TIMEOUT_S):
            url = ValkeyServer(home, lifetime="shared").start()
        yield url
