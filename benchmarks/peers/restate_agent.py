"""One handler with one `ctx.run`, by Restate: `python -m benchmarks.peers.restate_agent JOB` serves it on a port."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from benchmarks.peers.stopping import given
from tests.support.ledger import make_effect


def main() -> None:
    job, restate = given(), import_module("restate")
    serving, configs = import_module("hypercorn.asyncio"), import_module("hypercorn.config")
    service = restate.Service(job.name)

    async def book() -> str:
        job.at("effect.start")
        receipt = await asyncio.to_thread(make_effect, job.ledger_url, job.name, job.key)
        job.at("effect.end")
        return receipt

    async def run(ctx: Any, what: str) -> str:
        job.at("before")
        receipt: str = await ctx.run_typed("book", book)
        job.at("after")
        return receipt

    service.handler()(run)
    config = configs.Config()
    config.bind = [f"127.0.0.1:{job.port}"]
    asyncio.run(serving.serve(restate.app([service]), config))


if __name__ == "__main__":
    main()
