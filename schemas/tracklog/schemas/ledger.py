"""Attempt-ledger records: the row of slots in which dispatchers arbitrate who tries a call (DESIGN §8, 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracklog.schemas.values import Micros, Name, ResultStatus, Text, Value


class LedgerBody(Value):
    """Base of all ledger records; the class name is the record's type."""


class Attempt(LedgerBody):
    """Bids for a slot. Acting needs to be its first holder, read back: an acknowledgement alone lets two act."""

    dispatcher: Name
    not_after: Micros


class Expired(LedgerBody):
    """Takes a slot so that nobody tries."""

    dispatcher: Name
    reason: Text = ""


class Done(LedgerBody):
    """The holder of the slot has sent its outcome to the inbox."""

    dispatcher: Name
    status: ResultStatus


class Pending(LedgerBody):
    """The tool has taken the call on and answers later, by itself: nobody looks into it before `until`."""

    dispatcher: Name
    until: Micros


LEDGER_TYPES: Final[Mapping[str, type[LedgerBody]]] = {cls.__name__: cls for cls in (Attempt, Expired, Done, Pending)}
