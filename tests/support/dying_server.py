"""Replicas of `tracklog serve`, each killed between what it made durable and its answer, when a file asks for it.

    python -m tests.support.dying_server FOLDER PORT,PORT OPTION...

Modules are imported once, each replica is a fork of that, and one that has died is started again.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from tracklog.consumers.cli import main as tracklog
from tracklog.consumers.ingest import ingest
from tracklog.infra.log.port import Position
from tracklog.producers.post import Poster

BEFORE_FORK = (
    "uvicorn",
    "uvicorn.protocols.http.h11_impl",
    "tracklog.consumers.api.app",
    "tracklog.consumers.cli.serve",
)


def kill_file(folder: Path, number: int) -> Path:
    """Its replica is killed when it is there; then it is gone."""
    return folder / f"kill-{number}"


def serve(folder: Path, number: int, port: int, options: list[str]) -> NoReturn:
    path, answer = kill_file(folder, number), ingest._answer

    posted = Poster.post

    def die() -> None:
        if path.exists():
            path.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    def dying(*given: Any) -> ingest.Recorded:
        die()
        return answer(*given)

    async def posting(*given: Any, **named: Any) -> Position:
        position = await posted(*given, **named)
        die()
        return position

    setattr(ingest, "_answer", dying)  # noqa: B010 - a function is not to be assigned to
    setattr(Poster, "post", posting)  # noqa: B010
    sys.argv = ["tracklog", *options, "--set", f"api.port={port}", "serve"]
    try:
        tracklog()
    finally:
        os._exit(1)


def main(folder: Path, ports: list[int], options: list[str]) -> None:
    for module in BEFORE_FORK:
        importlib.import_module(module)
    running: dict[int, int] = {}

    def start(number: int) -> None:
        pid = os.fork()
        if pid == 0:
            serve(folder, number, ports[number], options)
        running[pid] = number

    for number in range(len(ports)):
        start(number)
    while True:
        start(running.pop(os.wait()[0]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(port) for port in sys.argv[2].split(",")], sys.argv[3:])
