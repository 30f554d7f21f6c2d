"""What a dispatcher keeps in Redis of its partitions, so that it need not fold them from their beginning (DESIGN §6).

    t:TRAJECTORY    its head, and whether it was cancelled or has ended
    calls           a hash: `ledger` is the offset from which the attempt ledger is to be read; cHASH the record
                    of an open intent, rHASH its row of the ledger; eHASH is there when a person was asked

Both and the position are written by one guarded script. They may be older than the log, never newer: what is newer is
read again. All is made from the log, so what does not fit together is dropped, and the partition folded anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from tracklog.consumers.dispatch.follow import NEW, Followed, Intended, intended
from tracklog.consumers.dispatch.slots import EMPTY, Row, Slot
from tracklog.infra.clock import Clock, Entropy
from tracklog.infra.log.port import Bounds, Log, Record
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import ask
from tracklog.processors.redis_store import RedisStore
from tracklog.processors.store import Checkpoint
from tracklog.processors.store_keys import StoreKeys
from tracklog.processors.writes import SetFields, Unset, Write, own_fields
from tracklog.schemas.codec import decode_event
from tracklog.schemas.errors import SettingsError, StoreUnavailable
from tracklog.schemas.events import ToolIntent
from tracklog.schemas.head import Head
from tracklog.schemas.topics import Topics

__all__ = ["KEEP_RECORDS", "NAME", "VERSION", "Keeper", "KeptRow", "Standing", "Start", "keeper_on"]

NAME: Final = "dispatch"
VERSION: Final = 1
CALLS: Final = "calls"
LEDGER: Final = "ledger"
WHOLE: Final = "whole"
"""Written with the first commit only: calls without it were lost, and written to since."""
FIELD: Final = "f"
KEEP_S: Final = 1.0
"""Between two commits of a partition that is busy. After a crash so much is read again; nothing rests on it."""
KEEP_RECORDS: Final = 5000
"""Records or trajectories of one commit."""
MARK_S: Final = 5.0
"""Between two looks at the ends, from which it is told how far the ledger need not be read again."""


class KeptRow(NamedTuple):
    """A row of the ledger as it was at an offset: entries before that are in it."""

    row: Row = EMPTY
    upto: int = 0


class Start(NamedTuple):
    """Where a partition is gone on with. `known` are the trajectories that have open calls, by record key."""

    position: int
    ledger_from: int
    known: dict[bytes, Followed]
    rows: dict[bytes, KeptRow]


class Standing(NamedTuple):
    """Rows of the ledger with all entries before `position`: those that were asked for, and those that changed."""

    position: int
    rows: Mapping[bytes, Row]


Ends = Callable[[], tuple[int, int]]
"""The ends of ledger and events, asked for in this order: what was intended behind the second has no entry before the
first, because nobody could read it when the first was asked for."""


@dataclass(slots=True)
class _Kept:
    """Of one partition. `opened`, `gone`, `changed`: what the next commit writes. `mark`: ends that were looked up."""

    checkpoint: Checkpoint | None
    ledger_from: int
    open: set[bytes]
    opened: dict[bytes, Record] = field(default_factory=dict)
    asked: set[bytes] = field(default_factory=set)
    gone: set[bytes] = field(default_factory=set)
    changed: dict[bytes, None] = field(default_factory=dict)
    mark: tuple[int, int] | None = None
    marked_s: float = 0.0
    kept_s: float = 0.0


class Keeper:
    """Of one process; called by the partition loop's thread. `told` hears when something is dropped, or not there.

    Of a partition at most `known_max` trajectories without open calls stay in memory.
    """

    def __init__(
        self,
        client: RedisClient,
        store: RedisStore,
        *,
        clock: Clock,
        known_max: int,
    ) -> None:
        self._client = client
        self._store = store
        self._clock = clock
        self._known_max = known_max
        self.told: Callable[[str], None] = lambda _: None
        self._kept: dict[int, _Kept] = {}
        self._away = False

    def begin(self, partition: int, events: Bounds, ledger: Bounds) -> Start:
        """The bounds as they are now, of the ledger first (see `Ends`).

        Raises SettingsError when the store holds what was made from other topics; StoreUnavailable.
        """
        checkpoint = self._store.checkpoint(partition)
        start = None if checkpoint is None else self._stored(partition, checkpoint)
        if start is not None and (start.position > events.end or start.ledger_from > ledger.end):
            start = None
        if start is None and checkpoint is not None:
            self.told(f"partition {partition}: what is stored is not whole or ahead of the log; it is made anew")
            self._store.drop(partition)
            checkpoint = None
        if start is None:
            start = Start(events.first, ledger.first, {}, {})
        self._kept[partition] = _Kept(checkpoint, start.ledger_from, set(start.rows), mark=(ledger.end, events.end))
        return start

    def look(self, partition: int) -> Start | None:
        """What is stored, for who only looks: a commit meanwhile may make a few calls wrong. None where nothing is, or
        it is not whole. Raises as `begin`."""
        checkpoint = self._store.checkpoint(partition)
        return None if checkpoint is None else self._stored(partition, checkpoint)

    def _stored(self, partition: int, checkpoint: Checkpoint) -> Start | None:
        """None when it is not whole."""
        if checkpoint.source != self._store.source:
            raise SettingsError(
                f"{self._store.keys.base(partition)}* in Redis was made from the topics {checkpoint.source}, not from"
                f" {self._store.source}",
                hint="two logs cannot share one prefix: set another one, or remove these keys",
            )
        (stored,) = ask(self._client, [("HGETALL", self._store.keys.key(partition, CALLS))])
        ledger_from = stored.get(LEDGER.encode())
        if ledger_from is None or WHOLE.encode() not in stored:
            return None
        known: dict[bytes, Followed] = {}
        rows: dict[bytes, KeptRow] = {}
        for name, value in stored.items():
            if name.startswith(b"c"):
                intent_hash = bytes.fromhex(name[1:].decode())
                call = _call_of(value)
                if call is None or call.hash != intent_hash or b"r" + name[1:] not in stored:
                    return None
                call = call._replace(escalated=b"e" + name[1:] in stored)
                rows[intent_hash] = _row_of(stored[b"r" + name[1:]])
                key = call.trajectory_id.encode()
                before = known.get(key, NEW)
                known[key] = before._replace(calls={**before.calls, call.intent.call_id: call})
        heads = self._store.hashes(partition, checkpoint, [own_fields(key.decode()) for key in known])
        for key, fields in zip(list(known), heads, strict=True):
            if not fields:
                return None
            known[key] = _followed(fields)._replace(calls=known[key].calls)
        return Start(checkpoint.position, int(ledger_from), known, rows)

    def fetch(self, partition: int, known: dict[bytes, Followed], keys: Sequence[bytes]) -> None:
        """Brings back what left memory; what is not stored is new. Raises StoreConflict, StoreUnavailable."""
        missing = [key for key in dict.fromkeys(keys) if key not in known]
        ids = [key.decode(errors="replace") for key in missing]
        loaded = self._store.hashes(partition, self._kept[partition].checkpoint, [own_fields(one) for one in ids])
        for key, fields in zip(missing, loaded, strict=True):
            if fields:
                known[key] = _followed(fields)

    def changed(self, partition: int, record: Record, before: Followed, after: Followed) -> None:
        """A record was accepted: its trajectory is to be written at the next commit."""
        assert record.key is not None
        kept = self._kept[partition]
        kept.changed[record.key] = None
        if after.calls is before.calls:
            return
        for call in after.calls.values():
            if call.hash not in kept.open:
                kept.opened[call.hash] = record
                kept.open.add(call.hash)
            elif call.escalated:
                kept.asked.add(call.hash)
        for call_id, call in before.calls.items():
            now = after.calls.get(call_id)
            if now is None or now.hash != call.hash:
                kept.opened.pop(call.hash, None)
                kept.open.discard(call.hash)
                kept.gone.add(call.hash)

    def keep(
        self,
        partition: int,
        position: int,
        known: dict[bytes, Followed],
        *,
        idle: bool,
        standing: Callable[[Collection[bytes]], Standing | None],
        ends: Ends,
    ) -> Standing | None:
        """Commits when it is time; what the ledger's rows were then. Without a store it is tried again later: nothing
        rests on it. Raises StoreConflict when somebody else has moved what is stored."""
        kept, now_s = self._kept[partition], self._clock.monotonic_s()
        if not idle and len(kept.changed) < KEEP_RECORDS and now_s - kept.kept_s < KEEP_S:
            return None
        stands = standing(kept.opened)
        if stands is None:
            return None
        kept.kept_s = now_s
        if kept.mark is not None and position >= kept.mark[1]:
            ledger_from = kept.mark[0] if not kept.open else min(kept.mark[0], stands.position)
            kept.ledger_from, kept.mark = max(kept.ledger_from, ledger_from), None
        if kept.mark is None and now_s - kept.marked_s >= MARK_S:
            kept.mark, kept.marked_s = ends(), now_s
        rows = {one: KeptRow(row, stands.position) for one, row in stands.rows.items() if one in kept.open}
        try:
            self.commit(partition, position, known, rows)
        except StoreUnavailable as error:
            if not self._away:
                self.told(f"{error.message}; it is gone on without")
            self._away = True
            return None
        self._away = False
        return stands

    def commit(
        self, partition: int, position: int, known: dict[bytes, Followed], rows: Mapping[bytes, KeptRow]
    ) -> None:
        """Writes what has changed up to `position`; a call that is new and has no row has none before `ledger_from`.
        Raises StoreConflict, StoreUnavailable."""
        kept = self._kept[partition]
        new = {one: KeptRow(upto=kept.ledger_from) for one in kept.opened if one not in rows}
        fields = {f"c{one.hex()}": _stored_record(record) for one, record in kept.opened.items()}
        fields |= {f"e{one.hex()}": b"1" for one in kept.asked & kept.open}
        fields |= {f"r{one.hex()}": _stored_row(row) for one, row in (new | dict(rows)).items()}
        if kept.checkpoint is None:
            fields[WHOLE] = b"1"
        calls: list[Write] = [SetFields(CALLS, {LEDGER: str(kept.ledger_from).encode(), **fields})]
        if kept.gone:
            calls.append(Unset(CALLS, [kind + one.hex() for one in kept.gone for kind in "cre"]))
        writes = [*_heads(known, kept.changed), *calls]
        kept.checkpoint = self._store.commit(partition, kept.checkpoint, position, writes)
        kept.opened, kept.asked, kept.gone, kept.changed = {}, set(), set(), {}
        surplus = len(known) - self._known_max
        if surplus > 0:  # those that changed longest ago leave memory
            for key in [key for key, one in known.items() if not one.calls][:surplus]:
                del known[key]

    def forget(self, partition: int) -> None:
        self._kept.pop(partition, None)


def keeper_on(
    client: RedisClient, log: Log, topics: Topics, *, clock: Clock, entropy: Entropy, known_max: int
) -> Keeper:
    """Over this installation's topics; both are named, since what is stored says where to read each."""
    events, ledger = log.describe(topics.events), log.describe(topics.attempts)
    source = f"{events.cluster_id}/{events.topic_id}+{ledger.topic_id}"
    store = RedisStore(client, StoreKeys(topics.prefix, NAME, VERSION), source=source, entropy=entropy)
    return Keeper(client, store, clock=clock, known_max=known_max)


def _heads(known: Mapping[bytes, Followed], changed: Mapping[bytes, None]) -> Iterator[Write]:
    for key in changed:
        head, _, cancelled, ended = known[key]
        owner = None if head.owner is None else head.owner.hex()
        stored = orjson.dumps([head.epoch, head.seq, head.hash.hex(), owner, cancelled, ended])
        yield SetFields(own_fields(key.decode()), {FIELD: stored})


def _followed(fields: Mapping[bytes, bytes]) -> Followed:
    epoch, seq, hash_, owner, cancelled, ended = orjson.loads(fields[FIELD.encode()])
    head = Head(epoch, seq, bytes.fromhex(hash_), None if owner is None else bytes.fromhex(owner))
    return Followed(head, {}, cancelled, ended)


def _stored_record(record: Record) -> bytes:
    """As it was read: its key and headers in one line, then its value."""
    assert record.key is not None
    headers = [[name, value.hex()] for name, value in record.headers]
    return orjson.dumps([record.key.decode(), headers]) + b"\n" + (record.value or b"")


def _call_of(stored: bytes) -> Intended | None:
    """None for what is no intent."""
    line, _, value = stored.partition(b"\n")
    key, headers = orjson.loads(line)
    event = decode_event(key.encode(), value, tuple((name, bytes.fromhex(one)) for name, one in headers))
    return intended(event, event.body) if isinstance(event.body, ToolIntent) else None


def _stored_row(kept: KeptRow) -> bytes:
    slots = [[one.nonce.hex(), one.not_after, one.appended_us] for one in kept.row.slots]
    return orjson.dumps([slots, kept.row.pending_until, kept.row.done, kept.upto])


def _row_of(stored: bytes) -> KeptRow:
    slots, pending_until, done, upto = orjson.loads(stored)
    taken = tuple(Slot(bytes.fromhex(nonce), *times) for nonce, *times in slots)
    return KeptRow(Row(taken, pending_until, done), upto)
