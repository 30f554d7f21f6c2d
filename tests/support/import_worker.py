"""An importer in a process of its own, to be killed: `python -m tests.support.import_worker URL PREFIX BLOBS`."""

from __future__ import annotations

import asyncio
import sys

from tests.support.importing import import_all
from tests.support.writing import on_log
from tracklog.infra.blobs import open_blobs
from tracklog.producers.data import shipped_runs
from tracklog.producers.importers.run import Run

RUNS = 40


def some_runs() -> list[Run]:
    """Runs of both forms: the coding ones and as many of the airline's as make RUNS."""
    runs = [run for run in shipped_runs() if isinstance(run, Run)]
    return runs[-RUNS:]


async def main(url: str, prefix: str, blobs: str) -> None:
    async with on_log(url, prefix, pipelined_events_max=16) as (log, producer):
        report = await import_all(log, producer, open_blobs(blobs), some_runs(), prefix=prefix, concurrency=8)
    sys.stdout.write(f"{report.exit_code} {report.new} {report.resumed} {report.already}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
