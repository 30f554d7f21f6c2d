"""What an agent of a peer is to do, and the points at which it stops dead. Standard library only: it runs in the peer's
own environment.

`before` and `after` are around the step, `effect.start` and `effect.end` inside it, around the request to the service
that counts effects.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

POINTS = ("before", "effect.start", "effect.end", "after")


@dataclass(frozen=True)
class Job:
    """`key`: what the service takes as the key of the effect; None for a service that takes none. The first that passes
    `point` stops there. `port`: where the agent listens, `database`: where it keeps its state, where it does so;
    `resumes`: whether another one has begun."""

    name: str
    folder: str
    ledger_url: str
    point: str
    signal: int
    keyed: bool
    port: int = 0
    database: str = ""
    resumes: bool = False

    def argument(self) -> str:
        return json.dumps(asdict(self))

    @property
    def key(self) -> str | None:
        return self.name if self.keyed else None

    def at(self, point: str) -> None:
        if point != self.point:
            return
        try:
            (Path(self.folder) / "stopped").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), self.signal)


def given() -> Job:
    """The job of this process, from its command line."""
    return Job(**json.loads(sys.argv[1]))
