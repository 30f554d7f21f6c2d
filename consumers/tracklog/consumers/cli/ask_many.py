"""Asking something of many trajectories: of which it was asked, and of which it could not be."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from tracklog.consumers.cli.run import Run
from tracklog.consumers.tasking import ask_all, opened_client
from tracklog.producers.client import Client

__all__ = ["MOST", "ask_many", "tell_asked"]

MOST: Final = 100


def ask_many(
    run: Run, verb: str, wanted: Sequence[str], ask: Callable[[Client, str], Awaitable[None]], *, dry_run: bool
) -> None:
    """Asks each, and says so; a dry run only says which."""
    if dry_run:
        tell_asked(run, f"would {verb}", wanted, {})
        return
    with opened_client(run.settings) as client:
        asked = asyncio.run(ask_all(list(wanted), lambda one: ask(client, one)))
    tell_asked(run, f"asked to {verb}", asked.asked, asked.failed)


def tell_asked(run: Run, what: str, asked: Sequence[str], failed: Mapping[str, str]) -> None:
    """Those that failed are named, and make the exit code 1."""
    if run.as_json:
        run.out.json({"what": what, "trajectories": list(asked), "failed": dict(failed)})
    else:
        for trajectory_id in asked:
            run.out.text(f"{what} {trajectory_id}")
        if not asked and not failed:
            run.out.text("no trajectory matches")
        for trajectory_id, reason in failed.items():
            run.out.warning(f"{trajectory_id}: {reason}")
    if failed:
        run.faulty()
