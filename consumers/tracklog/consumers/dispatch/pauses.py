"""Which tools are paused: a record in the controls topic, which every dispatcher reads again and again.

A paused tool is not set going: its calls wait, for as long as their deadline lets them. What is on its way goes on. The
pause touches neither the ledger nor what was decided there, so it can delay a send and never make another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tracklog.infra.clock import Clock
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.producers.post import append_surely
from tracklog.schemas.codec import decode_control, encode_record
from tracklog.schemas.control import TOOLS_KEY, ControlBody, ToolPaused, ToolResumed
from tracklog.schemas.envelope import InboxEnvelope
from tracklog.schemas.errors import ForeignRecord, TopicMissing, TracklogError
from tracklog.schemas.given import checked
from tracklog.schemas.topics import Topics

__all__ = ["KNOWN_S_MAX", "LOOK_S", "Pause", "PauseBoard", "Pauses", "say"]

LOOK_S: Final = 1.0
"""Between two looks of a dispatcher."""
KNOWN_S_MAX: Final = 10.0
"""A dispatcher that could not look for so long begins no call: it does not know which tools are paused."""
_KEY: Final = TOOLS_KEY.encode()
_TENANT: Final = "default"


class Pause(NamedTuple):
    """`since_us`: when the log took it, microseconds since 1970 UTC."""

    tool: str
    by: str
    reason: str
    since_us: int


class PauseBoard:
    """The pauses as the log has them. `look` blocks, and reads only what is new."""

    def __init__(self, log: Log, topics: Topics) -> None:
        self._log = log
        self._topic = topics.controls
        self._position = -1
        self._taken: set[bytes] = set()
        self.paused: Mapping[str, Pause] = {}

    def look(self) -> Mapping[str, Pause]:
        """Reads to the present end. Raises LogUnavailable; of a log without the topic nothing was ever paused."""
        try:
            partition = partition_of(_KEY, self._log.partition_count(self._topic))
        except TopicMissing:
            self.paused = {}
            return self.paused
        bounds = self._log.bounds(self._topic, partition)
        known = bounds.first <= self._position <= bounds.end
        paused = dict(self.paused) if known else {}
        taken = set(self._taken) if known else set[bytes]()
        start = self._position if known else bounds.first
        for record in read_range(self._log, self._topic, partition, start, bounds.end, bounds=bounds):
            if record.key != _KEY:
                continue
            try:
                read = decode_control(record.key, record.value, record.headers)
            except ForeignRecord:
                continue  # nobody's word
            if read.problem or read.hash in taken:  # one that nobody knew of may come once more, and late
                continue
            taken.add(read.hash)
            body = read.body
            if isinstance(body, ToolPaused):
                paused.setdefault(body.tool, Pause(body.tool, body.by, body.reason, record.timestamp_ms * 1000))
            elif isinstance(body, ToolResumed):
                paused.pop(body.tool, None)
        self._position, self._taken, self.paused = bounds.end, taken, paused
        return paused


class Pauses:
    """What one dispatcher knows of them. Until it has looked once, every tool counts as paused."""

    def __init__(self, log: Log, topics: Topics, clock: Clock, told: Callable[[str], None]) -> None:
        self._board = PauseBoard(log, topics)
        self._clock = clock
        self._told = told
        self._paused: Mapping[str, Pause] = {}
        self._seen_s: float | None = None
        self._in_the_dark = False

    def holds(self, tool: str) -> bool:
        """Whether no call of the tool may be begun now."""
        return tool in self._paused or not self.known

    @property
    def known(self) -> bool:
        """Whether it has looked lately."""
        return self._seen_s is not None and self._clock.monotonic_s() - self._seen_s <= KNOWN_S_MAX

    async def follow(self, changed: Callable[[], None]) -> None:
        """Looks until it is cancelled. `changed` is called when a tool may have come to be held or not any more."""
        while True:
            before = self._paused, self.known
            await self.look()
            if (self._paused, self.known) != before:
                changed()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        asked_s = self._clock.monotonic_s()
        try:
            paused = await asyncio.to_thread(self._board.look)
        except TracklogError as error:
            if not self.known and not self._in_the_dark:
                self._in_the_dark = True
                self._told(f"no call is begun: which tools are paused cannot be read: {error.message}")
            return
        self._in_the_dark = False
        for tool in paused.keys() - self._paused.keys():
            self._told(f"tool {tool} is paused by {paused[tool].by}: its calls wait")
        for tool in self._paused.keys() - paused.keys():
            self._told(f"tool {tool} goes on")
        self._paused, self._seen_s = paused, asked_s


async def say(log: Log, topics: Topics, body: ControlBody, *, by: str, clock: Clock) -> None:
    """Appends a control record; returns when it is durable. Said twice, it is the same. Raises as `append_surely`."""
    with checked(f"the {type(body).__name__}"):
        envelope = InboxEnvelope(
            trajectory_id=TOOLS_KEY, tenant=_TENANT, source=by, source_seq=0, lamport=0, recorded_at=clock.now_us()
        )
    await append_surely(log, topics.controls, _KEY, encode_record(envelope, body), clock=clock)
