"""A lock between processes, held as long as a block of code runs; the kernel frees it when its holder dies."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracklog.infra.stack.process import wait_until, writing
from tracklog.schemas.errors import StackError


@contextmanager
def file_lock(path: Path, *, timeout_s: float, shared: bool = False) -> Iterator[None]:
    """Exclusive, or `shared` with others who say so.

    Raises StackError that names the file when it cannot be written, or another process holds the lock for longer
    than the bound.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("a")
    with opened as handle:

        def taken() -> bool:
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        if not wait_until(taken, timeout_s):
            raise StackError(
                f"another process has held {path} for {timeout_s:.0f} s",
                hint="another `stack up` or a first download is at work: wait for it, or end it",
            )
        yield
