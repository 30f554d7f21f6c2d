"""Processes that start in no time: modules are imported once, and each process is a fork of that.

    python -m tests.support.zygote MODULE...

Reads a line of JSON for each process, [module, argument, environment, file]; writes its pid, and its exit status when
it has ended. The process runs `main(argument)` of the module, and writes what it returns into the file.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("schemas", "infra", "producers")


class Zygote:
    """One process at a time: `start`, then `wait`."""

    def __init__(self, served: subprocess.Popen[str]) -> None:
        self._served = served

    def start(self, module: str, argument: str, environment: Mapping[str, str], out: Path) -> int:
        """The pid."""
        assert self._served.stdin is not None
        self._served.stdin.write(json.dumps([module, argument, dict(environment), str(out)]) + "\n")
        self._served.stdin.flush()
        return self._number()

    def wait(self) -> int:
        """The exit status; minus the number of the signal that killed it."""
        return os.waitstatus_to_exitcode(self._number())

    def _number(self) -> int:
        assert self._served.stdout is not None
        return int(self._served.stdout.readline())


@contextmanager
def zygote(modules: Sequence[str]) -> Iterator[Zygote]:
    path = os.pathsep.join([*(str(ROOT / role) for role in ROLES), str(ROOT)])
    command = [sys.executable, "-m", "tests.support.zygote", *modules]
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as served:
        yield Zygote(served)
        assert served.stdin is not None
        served.stdin.close()


def _run(module: str, argument: str, environment: Mapping[str, str], out: str) -> int:
    try:
        os.environ.update(environment)
        os.chdir(Path(out).parent)
        Path(out).write_text(asyncio.run(importlib.import_module(module).main(argument)))
    except BaseException:  # noqa: BLE001 - a fork must not come back into its parent's loop
        traceback.print_exc()
        return 1
    return 0


def main(modules: Sequence[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    assert threading.active_count() == 1, "a fork has none of its parent's threads"
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os._exit(_run(*json.loads(line)))
        _tell(pid)
        _tell(os.waitpid(pid, 0)[1])


def _tell(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
