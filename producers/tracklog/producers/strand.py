"""What a task of the program saw last, and that nothing overlaps that could not be read back.

A task that is started inherits what its starter had seen; what it sees itself, its starter does not. So each
event names the one it follows from in the program's own order, whatever else ran beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from tracklog.schemas.errors import SessionMisused

__all__ = ["Strand"]

_NOTHING: Final[Mapping[int, int]] = {}
_numbers = itertools.count()
_seen: ContextVar[Mapping[int, int]] = ContextVar("tracklog_seen", default=_NOTHING)
"""Number of a session -> seq of the event seen last."""


class Strand:
    """Of one session."""

    def __init__(self) -> None:
        self._number = next(_numbers)
        self._beside = 0
        self._ordered: str | None = None

    @property
    def last(self) -> int | None:
        """The event that this task saw last."""
        return _seen.get().get(self._number)

    def saw(self, seq: int) -> None:
        _seen.set({**_seen.get(), self._number: seq})

    def over(self) -> None:
        """Forgets the session in this task."""
        _seen.set({number: seq for number, seq in _seen.get().items() if number != self._number})

    @contextmanager
    def ordered(self, what: str) -> Iterator[None]:
        """Around what has its place in the order of all: nothing may run beside it."""
        if self._ordered is not None or self._beside:
            beside = self._ordered if self._ordered is not None else f"{self._beside} calls or steps"
            raise SessionMisused(f"{what} was asked for beside {beside}", hint="await what runs side by side first")
        self._ordered = what
        try:
            yield
        finally:
            self._ordered = None

    @contextmanager
    def beside(self, what: str) -> Iterator[None]:
        """Around what may run side by side with its like."""
        if self._ordered is not None:
            raise SessionMisused(f"{what} was asked for beside {self._ordered}", hint="await that first")
        self._beside += 1
        try:
            yield
        finally:
            self._beside -= 1
