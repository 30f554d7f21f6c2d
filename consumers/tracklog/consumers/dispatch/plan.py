"""What is to be done next about a dispatched call, from what the ledger says of it. Pure (DESIGN §8, rules 5 to 7).

    ledger                            class         next
    Done                              any           nothing: its outcome is in the inbox
    no slot                           readonly      run it: readonly takes no slots
    no slot, before not-after         others        bid for slot 1
    no slot, later, or cancelled      others        expire slot 1
    a tool that is not here or paused any           as if its time had not come: wait for its deadline, then expire
    the last slot is expired          any           report that it did not happen, and never will
    an attempt that was just won      any           run it; past its deadline (not idempotent): expire the next slot
    a precondition that is not met    any           as if the call were cancelled: not begun, not sent again
    an attempt without Done: doubt    idempotent    run again under its key while that surely lives, else as below
                                      with a probe  wait, probe; absent: expire the next slot
                                      others        wait, ask a person

A paused tool is not set going in any of these: what would run waits for the end of its time instead, and what is done
then is the same as without the pause. Probing and asking go on.

*Wait* is until an effect of the last attempt has landed or never will: its own not-after and the grace; for an
idempotent call also until its key is surely forgotten. An attempt whose tool said `Pending` is in doubt from the time
on that the tool gave. Nobody's name counts, only whether this start of a process has won the slot and not used it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from tracklog.consumers.dispatch.slots import Row
from tracklog.schemas.events import ToolIntent
from tracklog.schemas.values import Effect

__all__ = ["PROBES_MAX", "REISSUES_MAX", "Do", "Known", "Step", "next_step"]

REISSUES_MAX: Final = 5
"""Sends under one key by one process, before it leaves the call to time."""
PROBES_MAX: Final = 3
_US_PER_MS: Final = 1000


class Do(StrEnum):
    NOTHING = "nothing"
    BID = "bid"
    EXPIRE = "expire"
    RUN = "run"
    PROBE = "probe"
    WAIT = "wait"
    ASK = "ask"
    REPORT_EXPIRED = "report expired"


class Step(NamedTuple):
    """`slot`: the one to take, or in which to run. `until_us`: the deadline of a run, or the end of a wait."""

    do: Do
    slot: int = 0
    until_us: int = 0


class Known(NamedTuple):
    """What this process knows beside the ledger.

    `won`: the slot that it holds and has not used yet. `latest_us`: now, by the clock that is ahead. `earliest_us`:
    just before the ledger was read, by the one that is behind. `sends`, `probes`: how often it has sent again and
    probed. `absent`: a probe said so. `paused`: no call of the tool may be begun. `barred`: its precondition has just
    said that it must not be sent.
    """

    latest_us: int
    earliest_us: int
    grace_us: int
    has_tool: bool = True
    has_probe: bool = False
    paused: bool = False
    barred: bool = False
    cancelled: bool = False
    won: int | None = None
    sends: int = 0
    probes: int = 0
    absent: bool = False

    @property
    def unwanted(self) -> bool:
        """A call that nobody has sent is not to be sent any more."""
        return self.cancelled or self.barred


def next_step(intent: ToolIntent, row: Row, known: Known) -> Step:
    """One step; after it the ledger is read again."""
    if row.done:
        return Step(Do.NOTHING)
    if row.unread:
        return _left_to_others(intent, row, known)
    last = row.last
    if last is None:
        return _first(intent, known)
    if last.not_after is None:
        return Step(Do.REPORT_EXPIRED, len(row.slots))
    key_ends_us = _key_ends_us(intent, row)
    if known.won == len(row.slots):
        until_us = last.not_after if key_ends_us is None else min(last.not_after, key_ends_us - known.grace_us)
        if known.latest_us < until_us and not known.unwanted:
            return Step(Do.WAIT if known.paused else Do.RUN, len(row.slots), until_us)
        if key_ends_us is None:
            return Step(Do.EXPIRE, len(row.slots) + 1)
    return _in_doubt(row, known, last.not_after, key_ends_us)


def _first(intent: ToolIntent, known: Known) -> Step:
    can_run = known.has_tool and not known.paused
    if intent.effect is Effect.READONLY and can_run and not known.unwanted:
        return Step(Do.RUN, 0, _FOR_EVER)
    not_after = intent.not_after if intent.not_after is not None else 0
    if known.unwanted or known.latest_us >= not_after:
        return Step(Do.EXPIRE, 1)
    return Step(Do.BID, 1) if can_run else Step(Do.WAIT, 0, not_after)


def _left_to_others(intent: ToolIntent, row: Row, known: Known) -> Step:
    """Somebody of a version not known here has said something about the call: begun it, perhaps. It is left to them for
    as long as it may take, and then to a person."""
    due_us = max(intent.not_after or 0, row.pending_until or 0, *(one.not_after or 0 for one in row.slots), 0)
    due_us += known.grace_us
    return Step(Do.WAIT if known.earliest_us < due_us else Do.ASK, len(row.slots), due_us)


def _in_doubt(row: Row, known: Known, not_after: int, key_ends_us: int | None) -> Step:
    number = len(row.slots)
    pending = row.pending_until
    may_send = known.has_tool and not (known.paused or known.barred) and known.sends < REISSUES_MAX
    if key_ends_us is not None and pending is None and may_send:
        send_until_us = key_ends_us - known.grace_us
        if known.latest_us < send_until_us:
            return Step(Do.RUN, number, send_until_us)
    due_us = max(not_after, key_ends_us or 0, pending or 0) + known.grace_us
    if known.earliest_us < due_us:
        return Step(Do.WAIT, number, due_us)
    if known.absent:
        return Step(Do.EXPIRE, number + 1)
    if known.has_probe and known.probes < PROBES_MAX:
        return Step(Do.PROBE, number)
    return Step(Do.ASK, number)


def _key_ends_us(intent: ToolIntent, row: Row) -> int | None:
    """When the tool may forget the key of an idempotent call; None for a call that rests on none."""
    if intent.effect is not Effect.IDEMPOTENT or intent.key_ttl_ms is None:
        return None
    return row.slots[0].appended_us + intent.key_ttl_ms * _US_PER_MS


_FOR_EVER: Final = 2**62
