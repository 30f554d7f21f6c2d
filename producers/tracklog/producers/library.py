"""Library mode: a program of any process is made durable by opening a session around it (DESIGN §7).

    async with durable("trip-1", Setup("traveller", "book a trip", tools=ToolSet.of(book))) as session:
        ...

The first time it runs; after a crash the same lines go on where it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tracklog.producers.connection import Connection, connected
from tracklog.producers.opening import opened
from tracklog.producers.session import Session
from tracklog.producers.setup import Setup

__all__ = ["durable"]


@asynccontextmanager
async def durable(
    trajectory_id: str,
    setup: Setup,
    *,
    at: Connection | None = None,
    tenant: str | None = None,
    from_checkpoint: bool = False,
) -> AsyncIterator[Session]:
    """A session on the trajectory, new or as its record says.

    `at` is a connection that sessions share; without one the session has its own, as the settings of the process
    say. `from_checkpoint` is for programs that go on from `session.memory` alone, as `run_turns` does. Raises what
    `connected` and `opened` raise. Left with an error, the trajectory stays resumable.
    """
    async with AsyncExitStack() as stack:
        here = at if at is not None else await stack.enter_async_context(connected())
        session = opened(
            here.producer,
            trajectory_id,
            log=here.log,
            setup=here.completed(setup),
            topics=here.topics,
            tenant=tenant if tenant is not None else here.tenant,
            from_checkpoint=from_checkpoint,
        )
        yield await stack.enter_async_context(session)
