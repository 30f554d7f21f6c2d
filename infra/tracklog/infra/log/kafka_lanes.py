"""What waits in front of librdkafka, so that it never holds what it may not send yet.

An idempotent producer has at most five requests of a partition on their way. librdkafka counts *records* against
these five, and while it has more of them than it may send, its thread looks again without a pause: a worker whose
turns write five events had it look 250 times a call, for a third of all its processor time. So what it could not
send waits here. Once those before are reported it is handed over together, and becomes one batch.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, NamedTuple

from tracklog.infra.log.port import Delivered, Headers

__all__ = ["IN_FLIGHT_MAX", "Lane", "Lanes", "Waiting"]

IN_FLIGHT_MAX: Final = 5
"""Records of a partition on their way above which librdkafka sends no more of them (RD_KAFKA_IDEMP_MAX_INFLIGHT)."""

MANY: Final = 5 * IN_FLIGHT_MAX
"""Above so many that wait they are handed over at once, to be one large batch: that its first part is sent before the
rest is there, and the rest then looked at without a pause, is little for each of them."""
HAND_OVER_MAX: Final = 1000
"""Records of a partition that are handed over in one go; who appends waits meanwhile."""


class Waiting(NamedTuple):
    """A record as it was appended."""

    topic: str
    key: bytes
    value: bytes
    headers: Headers
    delivered: Delivered

    @property
    def size_bytes(self) -> int:
        return len(self.key) + len(self.value)


class Lane:
    """One partition: how many of its records the client has, and those that wait for them, in order."""

    __slots__ = ("under_way", "waiting")

    def __init__(self) -> None:
        self.under_way = 0
        self.waiting: deque[Waiting] = deque()

    @property
    def is_open(self) -> bool:
        """Whether the client would send one more at once."""
        return not self.waiting and self.under_way < IN_FLIGHT_MAX

    @property
    def room(self) -> int:
        """How many of those that wait are handed over now."""
        count = len(self.waiting)
        return min(count, HAND_OVER_MAX) if count > MANY else min(count, IN_FLIGHT_MAX - self.under_way)


class Lanes:
    """Of one client. `lock` is held by whoever changes a lane or hands a record to the client: so what is appended to
    one partition gets there in its order. `records`, `size_bytes`: of what waits in all of them."""

    def __init__(self) -> None:
        self.lock: Final = threading.Lock()
        self.records = 0
        self.size_bytes = 0
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._due: list[Lane] = []

    def of(self, topic: str, partition: int) -> Lane:
        place = topic, partition
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = Lane()
        return lane

    def wait(self, lane: Lane, record: Waiting) -> None:
        lane.waiting.append(record)
        self.records += 1
        self.size_bytes += record.size_bytes

    def next(self, lane: Lane) -> Waiting:
        """The first that waits, which does so no longer."""
        record = lane.waiting.popleft()
        self.records -= 1
        self.size_bytes -= record.size_bytes
        return record

    def put_back(self, lane: Lane, record: Waiting) -> None:
        """The client has no room for it: it is the first that waits again."""
        lane.waiting.appendleft(record)
        self.records += 1
        self.size_bytes += record.size_bytes
        self.again(lane)

    def again(self, lane: Lane) -> None:
        """It is due at the next look."""
        self._due.append(lane)

    def lose(self, lane: Lane) -> list[Waiting]:
        """All that waits in a lane. Takes the lock."""
        with self.lock:
            return [self.next(lane) for _ in range(len(lane.waiting))]

    def reported(self, lane: Lane) -> None:
        """One record of the client has ended. Takes the lock."""
        with self.lock:
            lane.under_way -= 1
            if lane.waiting:
                self._due.append(lane)

    @property
    def any_due(self) -> bool:
        return bool(self._due)

    def due(self) -> list[Lane]:
        """Lanes of which more may be sent now."""
        found, self._due = self._due, []
        return [lane for lane in found if lane.waiting and lane.under_way < IN_FLIGHT_MAX]

    def give_up(self) -> list[Waiting]:
        """All that waits. Takes the lock; what is appended later has lanes of its own, as the reports of records that
        the client never ended would be missing in these."""
        with self.lock:
            given_up = [self.next(lane) for lane in self._lanes.values() for _ in range(len(lane.waiting))]
            self._lanes, self._due = {}, []
        return given_up
