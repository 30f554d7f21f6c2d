"""The crash matrix of dispatched calls: what is stopped at which point, for `MemberMatrix` with DISPATCHERS.

Two dispatchers share the calls, and a worker has the trajectories. A case stops a dispatcher, or the worker, at its
point; some stop the next one as well, while it settles what the first has left.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from tests.support.crash_matrix import CLASSES, PAUSE_S_MAX, Case
from tests.support.dispatch_points import DISPATCH_POINTS, SLOT_POINTS
from tests.support.ledger import ledger
from tests.support.matrix_worker import TURNS
from tests.support.member_matrix import DISPATCHERS, Fired, MemberMatrix
from tests.support.points import STAGES
from tracklog.infra.log.port import Log

ROUNDS_MAX = 3
OWNER_POINTS = tuple(f"{name}.{stage}" for name in ("ToolIntent", "ToolResult") for stage in STAGES)
POINTS = (*DISPATCH_POINTS, *OWNER_POINTS)
TWICE = (
    ("readonly", "effect.end", "Outcome.sent"),
    ("idempotent", "effect.start", "effect.start"),
    ("idempotent", "effect.end", "effect.end"),
    ("idempotent", "Outcome.append", "Outcome.stored"),
    ("probe", "send", "probe.start"),
    ("probe", "bid.read", "probe.end"),
    ("probe", "events.read", "Expired.append"),
    ("probe", "send", "Expired.sent"),
    ("probe", "Attempt.stored", "Expired.stored"),
    ("probe", "effect.end", "Outcome.stored"),
    ("opaque", "send", "Outcome.append"),
    ("opaque", "effect.end", "Outcome.stored"),
    ("opaque", "effect.end", "Done.append"),
)
"""(class, where the first stops, where the one that settles it stops)"""


def dispatched_cases(seed: int, points: Sequence[str] = POINTS, classes: Sequence[str] = CLASSES) -> list[Case]:
    """One case of each class at each point that it comes to; the seed chooses in which turn, and how long after it."""
    drawn = random.Random(seed)
    return [
        Case(f"{effect}.{seed}.{point}", point, drawn.randint(1, TURNS), drawn.random() * PAUSE_S_MAX)
        for point in points
        for effect in classes
        if not (effect == "readonly" and point in SLOT_POINTS)
    ]


def settled_cases(seed: int, points: Sequence[str] = POINTS) -> list[Case]:
    """Those in which whoever settles the call is stopped as well, after a first stop at one of these points."""
    drawn = random.Random(seed)
    return [
        Case(f"{effect}.{seed}.{point}.{then}", point, drawn.randint(1, TURNS), drawn.random() * PAUSE_S_MAX, then)
        for effect, point, then in TWICE
        if point in points
    ]


async def stop_all(
    log: Log, prefix: str, folder: Path, cases: Sequence[Case], stop: int, *, replicas: int = 1
) -> Fired:
    """Of the given cases, each stopped at its point. A call that another's stop has met may never come to its own
    point: such a case is tried again, ROUNDS_MAX times in all."""
    found = Fired()
    left = list(cases)
    for number in range(ROUNDS_MAX):
        with ledger() as (_, url):
            matrix = MemberMatrix(
                log, f"{prefix}-{number}", folder, url, left, stop, members=DISPATCHERS, replicas=replicas
            )
            fired = await matrix.run()
        found.ended.update(fired.ended)
        found.stops += fired.stops
        found.wrong += fired.wrong
        found.never = fired.never
        left = [case for case in left if case.trajectory_id in fired.never]
        if not left:
            break
    return found
