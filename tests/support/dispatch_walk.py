"""A partition of dispatched calls at which anything may come next, and what a fold from the beginning says of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, cast

from tests.support.chains import Chain, Made, append_all
from tests.support.memory_logs import make_topics
from tracklog.consumers.dispatch.follow import NEW, Followed, follow
from tracklog.consumers.dispatch.kept import Keeper, Start, keeper_on
from tracklog.consumers.dispatch.ledger import Ledger
from tracklog.consumers.dispatch.partitions import Assigned, DispatchPartitions, News
from tracklog.consumers.dispatch.slots import EMPTY, Row, entered
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.memory import MemoryLog
from tracklog.infra.log.memory_store import MemoryStore
from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.infra.redis_client import RedisClient
from tracklog.schemas import events as ev
from tracklog.schemas.codec import decode_event, decode_ledger, encode_record
from tracklog.schemas.envelope import LedgerEnvelope
from tracklog.schemas.errors import StoreConflict
from tracklog.schemas.ledger import Attempt, Done, Expired, LedgerBody, Pending
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Body, Driver, Effect, Ending, Place, ResultStatus, Settled

TOPICS: Final = Topics()
FAR_US: Final = 2_000_000_000_000_000


def intent_of(call_id: str) -> ev.ToolIntent:
    return ev.ToolIntent(
        call_id=call_id,
        tool="pay",
        arguments=Body.of('{"to": "ada"}'),
        effect=Effect.OPAQUE,
        not_after=FAR_US,
        place=Place.DISPATCH,
        request_hash=bytes(range(32)),
    )


class Walk:
    """The log, and what happens to it."""

    def __init__(self, seed: str, name: str = "") -> None:
        self.chance = random.Random(seed)
        self.log: Log = MemoryLog(MemoryStore(name), now_ms=lambda: 1_700_000_000_000)
        make_topics(self.log, "tracklog", 1)
        self.chains = [self._begun(f"t{number}") for number in range(4)]
        self.calls = 0

    def step(self) -> None:
        """One more record: of an agent, of somebody who lost, or in the ledger."""
        chain, chance = self.chance.choice(self.chains), self.chance
        open_calls = [one for one in self.open_calls().values() if one.trajectory_id == chain.trajectory_id]
        match chance.choice(("intent", "intent", "result", "ledger", "ledger", "ledger", "lost", "claim", "end")):
            case "intent":
                self.calls += 1
                self._append(chain.add(intent_of(f"call-{self.calls}")))
            case "result" if open_calls:
                call_id = chance.choice(open_calls).intent.call_id
                body = ev.ToolResult(
                    call_id=call_id, status=ResultStatus.OK, output=Body.of(""), settled=Settled.DIRECT
                )
                self._append(chain.add(body))
            case "ledger" if open_calls:
                self._enter(chance.choice(open_calls))
            case "lost":
                lost = Chain(chain.trajectory_id)
                lost.seq, lost.epoch, lost.hash = chain.seq, max(0, chain.epoch - 1), chain.hash
                self._append(lost.add(intent_of("never")))
            case "claim":
                self._append(chain.claim(f"owner-{chance.random()}"))
            case "end" if not open_calls and chance.random() < 0.2:
                self._append(chain.add(ev.TaskEnded(ending=Ending.COMPLETED)))
                self.chains.remove(chain)
                self.chains.append(self._begun(f"t{chance.random()}"))
            case _:
                pass

    def open_calls(self) -> dict[bytes, Any]:
        return {call.hash: call for one in self.folded().values() for call in one.calls.values()}

    def folded(self) -> dict[bytes, Followed]:
        known: dict[bytes, Followed] = {}
        for record in self._records(TOPICS.events):
            assert record.key is not None
            event = decode_event(record.key, record.value, record.headers)
            known[record.key] = follow(known.get(record.key, NEW), event)
        return known

    def rows(self) -> dict[bytes, Row]:
        rows: dict[bytes, Row] = {}
        for record in self._records(TOPICS.attempts):
            read = decode_ledger(record.key, record.value, record.headers)
            intent_hash = read.envelope.intent_hash
            rows[intent_hash] = entered(rows.get(intent_hash, EMPTY), read, record.timestamp_ms)
        return rows

    def _records(self, topic: str) -> list[Record]:
        return list(read_range(self.log, topic, 0, 0, self.log.bounds(topic, 0).end))

    def _begun(self, trajectory_id: str) -> Chain:
        chain = Chain(trajectory_id, driver=Driver.WORKER)
        self._append(chain.claim())
        return chain

    def _append(self, made: Made) -> None:
        append_all(self.log, TOPICS.events, [made])

    def _enter(self, call: Any) -> None:
        """An entry that may be the next of its row, or come too late for it."""
        slots = len(self.rows().get(call.hash, EMPTY).slots)
        slot = self.chance.choice((slots + 1, max(1, slots)))
        bodies: list[LedgerBody] = [
            Attempt(dispatcher="d", not_after=FAR_US),
            Attempt(dispatcher="d", not_after=FAR_US),
            Expired(dispatcher="d", reason=""),
            Pending(dispatcher="d", until=FAR_US),
            Done(dispatcher="d", status=ResultStatus.OK),
        ]
        envelope = LedgerEnvelope(
            trajectory_id=call.trajectory_id,
            tenant=call.tenant,
            call_id=call.intent.call_id,
            intent_hash=call.hash,
            slot=slot,
            nonce=self.chance.randbytes(16),
            recorded_at=1,
        )
        encoded = encode_record(envelope, self.chance.choice(bodies))
        append_all(
            self.log, TOPICS.attempts, [Made(call.trajectory_id.encode(), encoded.value, encoded.headers, call.hash)]
        )


def watch(keeper: Keeper, told: Callable[[int, Start], None]) -> None:
    """Tells each time where a partition is begun."""
    begin, watched = keeper.begin, cast(Any, keeper)

    def begun(partition: int, *bounds: Any) -> Start:
        start = begin(partition, *bounds)
        told(partition, start)
        return start

    watched.begin = begun


class Member:
    """A dispatcher's side that owns the partition, and what it was told. `begun` is where it had to begin to read."""

    def __init__(self, walk: Walk, client: RedisClient, *, known_max: int = 2) -> None:
        self.walk = walk
        self.open: dict[bytes, Any] = {}
        self.revoked = 0
        self.said: list[str] = []
        self.keeper: Keeper = keeper_on(
            client, walk.log, TOPICS, clock=SystemClock(), entropy=SystemEntropy(), known_max=known_max
        )
        self.keeper.told = self.said.append
        self.ledger = Ledger(walk.log, TOPICS.attempts, clock=SystemClock())
        self.owner = DispatchPartitions(
            walk.log,
            TOPICS,
            assigned=self._assigned,
            news=self._news,
            revoked=self._revoked,
            standing=self.ledger.standing,
            saved=self.ledger.saved,
            keeper=self.keeper,
        )
        self.begun: list[tuple[int, int]] = []
        watch(self.keeper, lambda _, start: self.begun.append((start.position, start.ledger_from)))
        self.position = self.owner.restore(0)

    def fold(self) -> None:
        """What the partition loop does: a batch of what is there, and again from what is stored after a conflict."""
        upto = self.walk.chance.randint(self.position, self.walk.log.bounds(TOPICS.events, 0).end)
        records = list(read_range(self.walk.log, TOPICS.events, 0, self.position, upto))
        try:
            self.owner.fold(0, records, upto)
            self.position = upto
        except StoreConflict:
            self.owner.forget(0)
            self.position = self.owner.restore(0)

    async def read_ledger(self) -> None:
        await self.ledger.row(0, b"")

    def agrees(self) -> bool:
        """Whether it has the open calls up to where it is, with the rows that the ledger has for them."""
        stands = self.ledger.standing(0, list(self.open))
        assert stands is not None
        rows, ended = self.walk.rows(), self.position == self.walk.log.bounds(TOPICS.events, 0).end
        read = stands.position == self.walk.log.bounds(TOPICS.attempts, 0).end
        return (not ended or self.open == self.walk.open_calls()) and (
            not read or all(stands.rows[one] == rows.get(one, EMPTY) for one in self.open)
        )

    async def close(self) -> None:
        await asyncio.sleep(0)
        await self.ledger.close()

    def _assigned(self, partition: int, found: Assigned) -> None:
        self.open = {one.hash: one for one in found.calls}
        self.ledger.own(partition, found.rows, found.ledger_position, found.unsaved)

    def _news(self, partition: int, news: News) -> None:
        self.open |= {one.hash: one for one in news.opened}
        for one in news.closed:
            self.open.pop(one, None)
            self.ledger.settled(partition, one)

    def _revoked(self, partition: int) -> None:
        self.revoked += 1
