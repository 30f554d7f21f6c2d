"""Asking something of many trajectories: of which it was asked, and of which it could not be."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tracklog.consumers.cli.run import Run
from tracklog.consumers.tasking import Applies, Ask, Check, ask_all, chosen, opened_client

__all__ = ["MOST", "Request", "ask_many", "chosen_ids", "tell_asked"]

MOST: Final = 100
NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of each. `applies` narrows a filter to what can be asked; `check` raises for what cannot."""

    verb: str
    ask: Ask
    check: Check
    applies: Applies


def ask_many(
    run: Run, request: Request, ids: Sequence[str] | None, where: str | None, *, most: int, dry_run: bool
) -> None:
    """Asks each of those given or matched, and says so; a dry run says which would be asked, and which could not."""
    wanted = chosen_ids(run, ids or [], where, most, request.applies)
    with opened_client(run.settings) as client:
        check = request.check if dry_run else None
        asked = asyncio.run(ask_all(client, wanted, request.ask, check=check))
    tell_asked(run, f"{'would' if dry_run else 'asked to'} {request.verb}", asked.asked, asked.failed, asked.became)


def chosen_ids(run: Run, ids: Sequence[str], where: str | None, most: int, applies: Applies) -> list[str]:
    """The ids given, or those that match. Says so when more of them do."""
    found = chosen(run.settings, ids, where, most, applies)
    if found.more:
        run.out.note(f"more than {most} match; --max takes more")
    return found.ids


def tell_asked(
    run: Run, what: str, asked: Sequence[str], failed: Mapping[str, str], became: Mapping[str, str] = NOTHING
) -> None:
    """Those that failed are named, and make the exit code 1."""
    if run.as_json:
        run.out.json({"what": what, "trajectories": list(asked), "failed": dict(failed), "became": dict(became)})
    else:
        for trajectory_id in asked:
            new = became.get(trajectory_id)
            run.out.text(f"{what} {trajectory_id}{'' if new is None else f': goes on as {new}'}")
        if not asked and not failed:
            run.out.text("no trajectory matches")
        for trajectory_id, reason in failed.items():
            run.out.warning(f"{trajectory_id}: {reason}")
    if failed:
        run.faulty()
