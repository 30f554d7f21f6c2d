"""One upkeep of a table at a time. deltalake 1.6.3 refuses the second of two compactions by itself; later ones do not,
and then every row is there twice. So there is a lock as well.

In a directory the kernel frees it when its holder dies. In an object store it is a key that only one can create: one
whose holder died stays, and names who it was.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tracklog.infra.cold.faults import speaking_of
from tracklog.infra.cold.place import Place
from tracklog.infra.durable_files import make_durable_directory
from tracklog.schemas.errors import ColdConflict

__all__ = ["upkeep_lock"]

LOCK: Final = "_tracklog/upkeep.lock"


@contextmanager
def upkeep_lock(place: Place, now_us: int, *, broken: bool = False) -> Iterator[None]:
    """Raises ColdConflict when another one holds it. `broken`: takes that of an object store from whoever has it."""
    if place.folder is not None:
        with _held(place.folder / LOCK):
            yield
        return
    _take(place, now_us, broken)
    try:
        yield
    finally:
        place.remove(LOCK)


@contextmanager
def _held(path: Path) -> Iterator[None]:
    with speaking_of(f"cannot lock {path}"):
        make_durable_directory(path.parent)
        opened = path.open("a")
    with opened as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ColdConflict(f"another process compacts or cleans this table: it holds {path}") from error
        yield


def _take(place: Place, now_us: int, broken: bool) -> None:
    if broken:
        place.remove(LOCK)
    holder = {"host": platform.node(), "pid": os.getpid(), "since_us": now_us}
    if not place.create(LOCK, json.dumps(holder).encode()):
        raise ColdConflict(
            f"another process compacts or cleans this table: {place.uri}/{LOCK} says {place.text(LOCK)}",
            hint="wait for it; if it died, take its lock: --break-lock",
        )
