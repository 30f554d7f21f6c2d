"""Taking judgements into trajectories that have ended and are no worker's: nobody opens those any more.

The claim decides between several who do so at once, as it does between owners; what it costs is two events. A worker
does the same for its own (`worker_run`), and whoever runs a trajectory that has not ended takes what comes by itself.
"""

from __future__ import annotations

from typing import Final

from tracklog.infra.clock import Clock
from tracklog.infra.log.port import Log
from tracklog.producers.leash import Leash
from tracklog.producers.mailbox import LogMailbox
from tracklog.producers.pen import WriterPen
from tracklog.producers.producer import EventProducer
from tracklog.producers.taking import take_all
from tracklog.schemas.errors import WriterError
from tracklog.schemas.lifecycle import Parked
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Driver

__all__ = ["is_nobodys", "note"]

TRIES_MAX: Final = 5
"""How often a claim that somebody else won is tried again."""


def is_nobodys(state: State) -> bool:
    """Whether it has ended and no worker will take what comes for it."""
    return state.ended and state.task is not None and state.task.driver is not Driver.WORKER


async def note(
    producer: EventProducer, log: Log, topics: Topics, trajectory_id: str, *, owner: str, clock: Clock
) -> int:
    """Takes what the inbox has for a trajectory that `is_nobodys`; how many records that was.

    Raises WriterError when others won the claim TRIES_MAX times: what they take is everything that is there.
    """
    tries = 0
    while True:
        tries += 1
        try:
            return await _taken(producer, log, topics, trajectory_id, owner, clock)
        except WriterError:
            if tries >= TRIES_MAX:
                raise


async def _taken(
    producer: EventProducer, log: Log, topics: Topics, trajectory_id: str, owner: str, clock: Clock
) -> int:
    state = (await producer.history(trajectory_id)).state
    try:
        mailbox = LogMailbox(log, topics.inbox, trajectory_id, clock=clock)
        await mailbox.look()
        if state.task is None or all(
            one.inbox_id.seq <= _taken_of(state, one.inbox_id.source) for one in mailbox.waiting()
        ):
            return 0
        writer = await producer.claim(trajectory_id, owner=owner, driver=state.task.driver)
        pen = WriterPen(writer, Leash())
        taken = await take_all(pen, mailbox, clock)
        await writer.confirm()
        await writer.release("", parked=Parked(state.parked) if state.parked else Parked.LEFT)
        return len(taken)
    finally:
        producer.forget(trajectory_id)


def _taken_of(state: State, source: str) -> int:
    return state.inbox.get(source, -1)
