"""Read your own writes, also those that go into an inbox: where the events are by which a trajectory took them.

What is in an inbox is in the events when whoever runs the trajectory has taken it, or has refused it. The state says
how far each source was taken, so a record is waited for by its identity, and then its events as any others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import closing
from typing import Final, NamedTuple

from tracklog.consumers.read import PAUSE_S, Reader
from tracklog.consumers.read_live import seen_of
from tracklog.infra.log.port import Log
from tracklog.schemas.codec import decode_inbox
from tracklog.schemas.errors import ForeignRecord, RangeError, ReadBehind
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import InboxId

__all__ = ["INBOX", "Places", "places_of", "taken"]

INBOX: Final = "inbox:"
_POLL_S: Final = 1.0


class Places(NamedTuple):
    """What is to be seen: positions in the events, and in inboxes. By partition."""

    events: Mapping[int, int]
    inbox: Mapping[int, int]


def places_of(text: str) -> Places:
    """From `PARTITION:OFFSET` of the events and `inbox:PARTITION:OFFSET`, several with commas between. Raises
    RangeError for what is none."""
    parts = [one.strip() for one in text.split(",")]
    inbox = [one.removeprefix(INBOX) for one in parts if one.startswith(INBOX)]
    events = [one for one in parts if not one.startswith(INBOX)]
    return Places(seen_of(",".join(events)) if events else {}, seen_of(",".join(inbox)) if inbox else {})


async def taken(reader: Reader, log: Log, topics: Topics, inbox: Mapping[int, int], *, wait_s: float) -> dict[int, int]:
    """Positions in the events that have what was taken of these records of inboxes, by partition.

    Raises RangeError where there is no such record, ReadBehind when one is not taken, or that is not folded, within
    `wait_s` seconds.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    found = dict[int, int]()
    for partition, offset in inbox.items():
        trajectory_id, own = await asyncio.to_thread(_identity, log, topics.inbox, partition, offset)
        pause_s = PAUSE_S[0]
        while True:
            state = (await reader.state(trajectory_id)).value
            if state is not None and state.state.inbox.get(own.source, -1) >= own.seq:
                found[state.partition] = max(state.last_offset, found.get(state.partition, 0))
                break
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                raise _not_taken(partition, offset, wait_s)
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, PAUSE_S[1])
    return found


def _identity(log: Log, topic: str, partition: int, offset: int) -> tuple[str, InboxId]:
    if partition < log.partition_count(topic):
        bounds = log.bounds(topic, partition)
        if bounds.first <= offset < bounds.end:
            with closing(log.reader(topic, {partition: offset})) as reader:
                for record in reader.poll(1, _POLL_S):
                    if record.offset == offset:
                        try:
                            envelope = decode_inbox(record.key, record.value, record.headers).envelope
                        except ForeignRecord:
                            break
                        return envelope.trajectory_id, envelope.inbox_id
    raise RangeError(
        f"{topic} has no record at offset {offset} of partition {partition}",
        hint="give back the `seen` that the answer to what you said had",
    )


def _not_taken(partition: int, offset: int, wait_s: float) -> ReadBehind:
    return ReadBehind(
        f"nobody has taken what is at offset {offset} of partition {partition} of the inbox, or that is not folded yet:"
        f" waited {wait_s:g} s",
        hint="is somebody running this trajectory (tracklog worker), and `tracklog process`?",
        details={"inbox_partition": partition, "inbox_offset": offset},
    )
