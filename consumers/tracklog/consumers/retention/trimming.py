"""Planning what goes, checking that the cold tier has it, and letting go of it.

Nothing is deleted from the events before every record of it was read from both, the log and the table, and found to be
the same. Only prefixes go (DeleteRecords), so whatever ends this half way leaves a log that is kept from further down.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Final, NamedTuple

from tracklog.consumers.cold.rows import altered_rows
from tracklog.consumers.retention.rules import Cut, attempts_cut, events_cuts, inbox_cut
from tracklog.consumers.retention.survey import survey
from tracklog.infra.clock import Clock
from tracklog.infra.cold.cold_log import ColdLog
from tracklog.infra.cold.joined import JoinedLog
from tracklog.infra.log.port import Bounds, Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.schemas.codec import split_frame
from tracklog.schemas.errors import ColdDamaged, ColdMismatch, ColdMissing, ForeignRecord, InputError
from tracklog.schemas.topics import Topics

__all__ = ["Gap", "Plan", "Retention"]

DAY_S: Final = 86_400.0
_MS: Final = 1_000


class Gap(NamedTuple):
    """Offsets that the log has let go of and the table does not have: events that are lost to it."""

    partition: int
    exported: int
    first: int


class Plan(NamedTuple):
    """`exported`: the next offset of each partition in the table."""

    cuts: tuple[Cut, ...]
    exported: Mapping[int, int]
    gaps: tuple[Gap, ...]

    @property
    def records(self) -> int:
        return sum(cut.records for cut in self.cuts)


class Retention:
    """Over a log that is joined with its cold tier. `keep_s`: what is younger stays, by the log's time."""

    def __init__(self, log: JoinedLog, cold: ColdLog, topics: Topics, *, clock: Clock, keep_s: float) -> None:
        self._log = log
        self._hot: Log = log.hot
        self._cold = cold
        self._topics = topics
        self._clock = clock
        self._keep_s = keep_s

    def plan(self) -> Plan:
        """Reads all events, in the cold tier too; inbox and ledger. Blocks.

        Raises ColdMissing, ColdMismatch when the table is not of this topic.
        """
        topics, partitions = self._topics, range(self._log.partition_count(self._topics.events))
        self._check_table()
        tables = {p: self._cold.bounds(topics.events, p) for p in partitions}
        surveys = [survey(self._log, self._hot, topics, p) for p in partitions]
        cuts = events_cuts(
            topics.events,
            surveys,
            {one.partition: _whole_to(tables[one.partition], one.events) for one in surveys},
            {p: self._old(topics.events, p) for p in partitions},
        )
        for one in surveys:
            p = one.partition
            inbox = read_range(self._hot, topics.inbox, p, one.inbox.first, one.inbox.end)
            cuts.append(inbox_cut(topics.inbox, one, inbox, self._old(topics.inbox, p)))
            ledger = read_range(self._hot, topics.attempts, p, one.attempts.first, one.attempts.end)
            cuts.append(attempts_cut(topics.attempts, one, ledger, self._old(topics.attempts, p)))
        exported = {p: table.end for p, table in tables.items()}
        return Plan(tuple(cuts), exported, self.gaps(exported))

    def gaps(self, exported: Mapping[int, int]) -> tuple[Gap, ...]:
        """Partitions that begin behind what is exported. A partition of which nothing is exported begins at 0."""
        firsts = {p: self._hot.bounds(self._topics.events, p).first for p in exported}
        return tuple(Gap(p, end, firsts[p]) for p, end in exported.items() if firsts[p] > end)

    def check(self, plan: Plan) -> int:
        """Reads the events that are to go from the log and from the table. Returns how many were compared.

        Raises ColdDamaged, naming the first record that is not the same, or whose readable columns do not say what
        its payload says.
        """
        checked = 0
        for cut in plan.cuts:
            if cut.topic != self._topics.events or not cut.records:
                continue
            hot = read_range(self._hot, cut.topic, cut.partition, cut.first, cut.before)
            cold = read_range(self._cold, cut.topic, cut.partition, cut.first, cut.before)
            for ours, theirs in zip_longest(hot, cold):
                if ours is None or theirs is None or not _same(ours, theirs):
                    at = min(one.offset for one in (ours, theirs) if one is not None)
                    raise _differs(cut, at, "the cold tier does not have what the log has")
                checked += 1
            for at, detail in altered_rows(self._cold.events_table(), cut.partition, cut.first, cut.before):
                raise _differs(cut, at, f"the row in the cold tier was altered: {detail}")
        return checked

    def apply(self, plan: Plan) -> None:
        """Lets go of what was planned, after `check`. Raises what deleting raises."""
        for topic in (self._topics.attempts, self._topics.inbox, self._topics.events):
            before = {cut.partition: cut.before for cut in plan.cuts if cut.topic == topic and cut.records}
            if before:
                self._hot.delete_records(topic, before)

    def _old(self, topic: str, partition: int) -> int:
        """The first offset that is to stay for its age."""
        until_ms = self._clock.now_us() // _MS - round(self._keep_s * _MS)
        return self._hot.offset_at(topic, partition, until_ms + 1)

    def _check_table(self) -> None:
        own = self._hot.describe(self._topics.events)
        try:
            info = self._cold.describe(self._topics.events)
        except ColdMissing as error:
            raise ColdMissing(
                f"{error.message}: nothing may be trimmed before it is exported", hint="run: tracklog export"
            ) from error
        if (info.cluster_id, info.topic_id) != (own.cluster_id, own.topic_id):
            raise ColdMismatch(
                f"{self._cold.url} is the export of another topic than {self._topics.events} of {self._hot.url}",
                hint="set cold.url to the table of this log",
            )


def _differs(cut: Cut, at: int, what: str) -> ColdDamaged:
    return ColdDamaged(
        f"{cut.topic}, partition {cut.partition}, offset {at}: {what}; nothing was trimmed",
        hint="`tracklog cold verify` names everything that is wrong",
    )


def _whole_to(table: Bounds, kept: Bounds) -> int:
    """Up to where the table has all that the log keeps from its first on; a table that begins later has nothing."""
    return table.end if table.first <= kept.first <= table.end else kept.first


def _same(ours: Record, theirs: Record) -> bool:
    if (ours.offset, ours.key, ours.timestamp_ms) != (theirs.offset, theirs.key, theirs.timestamp_ms):
        return False
    return ours.value == theirs.value or _content(ours) == _content(theirs)


def _content(record: Record) -> object:
    """The same under either framing."""
    try:
        return split_frame(record.value or b"", dict(record.headers))
    except ForeignRecord:
        return record.value


def check_joined(log: Log) -> JoinedLog:
    """Raises InputError for the cold tier itself."""
    if not isinstance(log, JoinedLog):
        raise InputError(f"{log.url} is not trimmed: it is read only", hint="name the log: --log kafka://HOST:PORT")
    return log
