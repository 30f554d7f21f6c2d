"""Forks: a new trajectory that goes on from a turn of another one, with one thing changed (DESIGN §7).

    async with forked(producer, "trip-1b", origin="trip-1", turn=3, changes=Changes(prompt="be brief"), ...) as session:
        ...

Its record is that of its origin up to the turn, and then its own; nothing is copied. The program runs from its
beginning, and is answered from the origin until it comes to the turn. Killed, it is opened again like any other
trajectory: where it came from, what it may do and the reply it was given are in its own TaskStarted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from tracklog.infra.log.port import Log
from tracklog.producers.fork_start import Fork
from tracklog.producers.history import read_history
from tracklog.producers.lineage import fork_point, read_inherited
from tracklog.producers.models import Model
from tracklog.producers.opening import OWNER, opened
from tracklog.producers.policy import Policy
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.producer import EventProducer
from tracklog.producers.session import Session
from tracklog.producers.setup import Setup
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError
from tracklog.schemas.topics import Topics

__all__ = ["Changes", "forked"]


@dataclass(frozen=True, slots=True)
class Changes:
    """What is other in the fork, from its turn on. None: as the setup has it.

    `reply` is what the model is taken to have said at the turn: a message of the assistant as JSON, or plain text.
    A `policy` of a file is recorded with the fork; any other is to be given again when the fork is opened again.
    """

    model: Model | None = None
    prompt: str | None = None
    policy: Policy | None = None
    reply: str | None = None

    def applied(self, setup: Setup) -> Setup:
        """The setup with them."""
        return replace(
            setup,
            model=self.model if self.model is not None else setup.model,
            prompt=self.prompt if self.prompt is not None else setup.prompt,
            policy=self.policy if self.policy is not None else setup.policy,
        )


@asynccontextmanager
async def forked(
    producer: EventProducer,
    trajectory_id: str,
    *,
    origin: str,
    turn: int,
    log: Log,
    setup: Setup,
    changes: Changes = Changes(),
    allow: Iterable[str] = (),
    topics: Topics | None = None,
    owner: str = OWNER,
    tenant: str | None = None,
) -> AsyncIterator[Session]:
    """A session on a fork of `origin` at `turn`, new or as its record says.

    Tools are sandboxed but those that `allow` names. `setup` is that of the origin: its task and agent must be the
    same. `tenant` None takes the origin's. Raises InputError for a turn that is not there, and for a trajectory that
    is there and is another fork, or none; else as `durable`.
    """
    topic = (topics if topics is not None else Topics()).events
    record = await asyncio.to_thread(_whole_record, log, topic, origin)
    rules = changes.policy.text if isinstance(changes.policy, PolicyFile) else None
    start = Fork(fork_point(record, turn), turn, tuple(sorted(set(allow))), changes.reply, rules)
    tenant = tenant if tenant is not None else record[-1].envelope.tenant
    async with opened(
        producer,
        trajectory_id,
        log=log,
        setup=changes.applied(setup),
        topics=topics,
        owner=owner,
        tenant=tenant,
        fork=start,
    ) as session:
        yield session


def _whole_record(log: Log, topic: str, trajectory_id: str) -> Sequence[Event]:
    events = [event for event, _ in read_history(log, topic, trajectory_id)[1]]
    if not events:
        raise InputError(f"no trajectory {trajectory_id!r} in {topic}", hint="see: tracklog list")
    return (*read_inherited(log, topic, events), *events)
