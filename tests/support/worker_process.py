"""`tracklog worker` in processes of its own, to be killed, and what the log says of their runs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.writing import read_accepted
from tracklog.infra.log.port import Log
from tracklog.schemas.codec import Event
from tracklog.schemas.events import OwnershipClaimed
from tracklog.schemas.topics import Topics

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("schemas", "infra", "producers", "processors", "consumers")
TRAVELLER = ("tests.support.worker_agents:traveller",)
PARTITIONS = 3
BOUND_S = 60.0


@dataclass(frozen=True)
class Fleet:
    """What all workers of one log share. `env` has what their agents need."""

    log: Log
    prefix: str
    blobs: Path
    agents: Sequence[str] = TRAVELLER
    env: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def topics(self) -> Topics:
        return Topics(self.prefix)

    def start(self, name: str | None = None, *, said: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """`said`: where its output goes."""
        path = os.pathsep.join([*(str(ROOT / role) for role in ROLES), str(ROOT)])
        settings = {"topics.partitions": PARTITIONS, "topics.replication_factor": 1, "topics.min_insync_replicas": 1}
        command = [sys.executable, "-m", "tests.support.command_line", "--log", self.log.url, "--prefix", self.prefix]
        command += ["--blobs", str(self.blobs)]
        for key, value in {**settings, **self.settings}.items():
            command += ["--set", f"{key}={value}"]
        command += ["worker", *self.agents, *(() if name is None else ("--name", name))]
        env = {**os.environ, "PYTHONPATH": path, **self.env}
        return subprocess.Popen(command, env=env, stdout=said, stderr=subprocess.STDOUT, text=True, cwd=ROOT)

    @contextmanager
    def worker(self, name: str | None = None) -> Iterator[subprocess.Popen[str]]:
        """Killed at the end of the block if it still runs; what it said is told with a test that fails."""
        process = self.start(name)
        try:
            yield process
        finally:
            process.kill()
            said, _ = process.communicate()
            sys.stdout.write(said)

    def events(self, trajectory_id: str) -> list[Event]:
        return read_accepted(self.log, trajectory_id, prefix=self.prefix)

    def names(self, trajectory_id: str) -> list[str]:
        return [event.name for event in self.events(trajectory_id)]

    def claims(self, trajectory_id: str) -> list[tuple[bytes, int]]:
        """The accepted claims: nonce, and when it was written (microseconds since 1970 UTC)."""
        return [
            (event.body.nonce, event.envelope.recorded_at)
            for event in self.events(trajectory_id)
            if isinstance(event.body, OwnershipClaimed)
        ]

    async def until_events(self, ids: Sequence[str], name: str, count: int) -> None:
        """Until so many events of this name are accepted in all."""
        async with asyncio.timeout(BOUND_S):
            while sum(self.names(one).count(name) for one in ids) < count:  # noqa: ASYNC110 - a log has no event
                await asyncio.sleep(0.05)
