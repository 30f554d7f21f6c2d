"""A Postgres of its own for a peer, where one is installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Final

from tracklog.infra.stack.ports import LOOPBACK, free_ports

OWNER: Final = "postgres"
"""The user it runs as when this one is root, whom it refuses."""
START_S_MAX: Final = 60.0
LOOK_S: Final = 0.2


@contextmanager
def postgres() -> Iterator[str | None]:
    """The beginning of URLs of its databases, which are made by whoever uses them; None where there is none."""
    user = OWNER if os.geteuid() == 0 else None
    if not all(shutil.which(program) for program in ("initdb", "postgres", "pg_isready")) or not _is_user(user):
        yield None
        return
    with TemporaryDirectory(prefix="tracklog-bench-") as folder:
        if user is not None:
            shutil.chown(folder, user)
        data, port = f"{folder}/data", free_ports(1)[0]
        made = ["initdb", "-A", "trust", "-U", OWNER, "-D", data]
        subprocess.run(made, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        command = ["postgres", "-D", data, "-h", LOOPBACK, "-p", str(port), "-k", folder]
        server = subprocess.Popen(command, user=user, cwd=folder, stderr=subprocess.DEVNULL)
        try:
            _wait_ready(port)
            yield f"postgresql://{OWNER}@{LOOPBACK}:{port}"
        finally:
            server.terminate()
            server.wait()


def _is_user(name: str | None) -> bool:
    return name is None or name in {one.pw_name for one in pwd.getpwall()}


def _wait_ready(port: int) -> None:
    until_s = time.monotonic() + START_S_MAX
    command = ["pg_isready", "--quiet", "-h", LOOPBACK, "-p", str(port)]
    while subprocess.run(command, check=False).returncode != 0:
        if time.monotonic() > until_s:
            raise TimeoutError(f"Postgres did not answer within {START_S_MAX:g} s")
        time.sleep(LOOK_S)
