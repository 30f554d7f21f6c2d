"""The airline's recordings run again, live, by the built-in agent in this process; their users speak by the inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.support.airline import STOP, Recording, agent_of, effects_chosen
from tracklog.infra.blobs import BlobStore
from tracklog.infra.clock import SystemClock
from tracklog.infra.log.port import Log
from tracklog.producers.opening import opened
from tracklog.producers.post import Poster
from tracklog.producers.producer import EventProducer
from tracklog.producers.turn import Agent, run_turns
from tracklog.schemas import inbox
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Body, InboxId, Role

AT_ONCE = 10


def agents_of(recorded: Sequence[Recording], service_url: str) -> dict[str, Agent]:
    """Their agents, by name."""
    return {one.id: agent_of(one, service_url, effects_chosen("idempotent")) for one in recorded}


async def rerun(
    log: Log, producer: EventProducer, blobs: BlobStore, recorded: Sequence[Recording], service_url: str
) -> None:
    """Runs each to its end, ten at a time."""
    agents, places = agents_of(recorded, service_url), asyncio.Semaphore(AT_ONCE)
    poster = Poster(log, Topics(), clock=SystemClock())

    async def one(recording: Recording) -> None:
        agent = agents[recording.id]
        setup = agent.setup(recording.run.task, blobs)
        async with places, opened(producer, recording.id, log=log, setup=setup) as session:
            said = recording.said if recording.said and STOP in recording.said[-1] else (*recording.said, STOP)
            for number, text in enumerate(said):
                message = inbox.Message(peer="user", role=Role.USER, message=Body.of(text))
                await poster.post(recording.id, message, inbox_id=InboxId(source="user", seq=number))
            await run_turns(session, agent, recording.run.task)

    await asyncio.gather(*(one(recording) for recording in recorded))
