"""What was asked of many trajectories, and of which it could not be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tracklog.consumers.cli.run import Run

__all__ = ["MOST", "tell_asked"]

MOST: Final = 100


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
