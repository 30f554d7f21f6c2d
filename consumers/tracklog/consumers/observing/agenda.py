"""What waits for people and for time, from the agenda of the partitions that a router owns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tracklog.infra.metrics import Sample
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import ask
from tracklog.processors.agenda import ASKED, DOUBTED, DUE, OUTBOX, TrajectoryAgenda, waiting_of
from tracklog.processors.running import Running

__all__ = ["agenda_samples"]

_MS: Final = 1000


def agenda_samples(
    client: RedisClient, agenda: Running[TrajectoryAgenda], now_ms: int, overdue_s: float
) -> Iterator[Sample]:
    """Raises StoreUnavailable. Seven questions for each partition, however many entries there are."""
    keys, partitions = agenda.store.keys, sorted(agenda.loop.positions)
    since = f"({max(0, now_ms - round(overdue_s * _MS)):013d}"
    commands: list[tuple[str | int, ...]] = []
    for one in partitions:
        asked, due = keys.key(one, ASKED), keys.key(one, DUE)
        commands += [
            ("ZCARD", asked),
            ("ZRANGE", asked, 0, 0),
            ("ZLEXCOUNT", asked, "-", since),
            ("ZCARD", keys.key(one, DOUBTED)),
            ("ZCARD", due),
            ("ZRANGE", due, 0, 0, "WITHSCORES"),
            ("ZCARD", keys.key(one, OUTBOX)),
        ]
    answers = ask(client, commands) if commands else []
    held, first, overdue, doubted, timers, due_first, outbox = (answers[n::7] for n in range(7))
    oldest_ms = min((waiting_of(members[0]).since_ms for members in first if members), default=now_ms)
    due_ms = min((float(found[1]) for found in due_first if found), default=float(now_ms))
    yield Sample("tracklog_approvals_open", sum(held))
    yield Sample("tracklog_approvals_oldest_seconds", max(0.0, (now_ms - oldest_ms) / _MS))
    yield Sample("tracklog_approvals_overdue", sum(overdue))
    yield Sample("tracklog_escalations_open", sum(doubted))
    yield Sample("tracklog_timers_open", sum(timers))
    yield Sample("tracklog_timers_late_seconds", max(0.0, (now_ms - due_ms) / _MS))
    yield Sample("tracklog_outbox_open", sum(outbox))
