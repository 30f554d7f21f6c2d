"""The dispatchers of the simulation: real ones; only the thread of their partition loop is played here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from tests.simulation.log import SimLog, Store
from tests.simulation.loop import Process
from tests.simulation.tools import GRACE_S
from tests.simulation.truth import TOPICS
from tracklog.consumers.dispatch.dispatcher import Dispatcher
from tracklog.consumers.dispatch.follow import NEW, follow
from tracklog.infra.clock import Entropy
from tracklog.infra.log.port import Log
from tracklog.infra.settings import DispatchSettings, LoopSettings
from tracklog.producers.tools import ToolSet
from tracklog.schemas.codec import decode_event

BATCH: Final = 20
GIVES_UP_S: Final = 5.0
SETTINGS: Final = DispatchSettings(grace_s=GRACE_S)
LOOP: Final = LoopSettings()


async def dispatch(
    process: Process,
    store: Store,
    tools: ToolSet,
    *,
    entropy: Entropy,
    name: str,
    moves: set[Process],
    watched: dict[Process, Any],
    told: Callable[[str], None],
    paused: Callable[[Process, Dispatcher], Callable[[str], bool]],
) -> None:
    dispatcher = Dispatcher(
        cast(Log, SimLog(store)),
        TOPICS,
        tools,
        blobs=cast(Any, None),
        clock=process,
        entropy=entropy,
        name=name,
        settings=SETTINGS,
        loop_settings=LOOP,
        told=told,
    )
    owner: Any = dispatcher.partition_loop._owner
    watched[process] = dispatcher
    cast(Any, dispatcher.pauses).holds = paused(process, dispatcher)
    at = await asyncio.to_thread(owner.restore, 0)
    while True:
        if process in moves:
            moves.discard(process)
            owner._known.pop(0, None)
            owner._positions.pop(0, None)
            await dispatcher._give_up(0, GIVES_UP_S)
            at = await asyncio.to_thread(owner.restore, 0)
        await store.news(TOPICS.events, at)
        records = store.of(TOPICS.events)[at : at + process.loop.chance.randint(1, BATCH)]
        at += len(records)
        owner.fold(0, records, at)
        await asyncio.sleep(process.loop.chance.uniform(0.0, 0.05))


def follows_the_log(dispatcher: Dispatcher, store: Store) -> bool:
    """Whether it follows what a fold from the beginning gives."""
    if 0 not in dispatcher._partitions:
        return True
    owner: Any = dispatcher.partition_loop._owner
    wanted: dict[bytes, Any] = {}
    for record in store.of(TOPICS.events)[: dispatcher._partitions[0].position]:
        event = decode_event(record.key, record.value, record.headers)
        key = event.envelope.trajectory_id.encode()
        wanted[key] = follow(wanted.get(key, NEW), event)
    return bool(wanted == owner._known[0])
