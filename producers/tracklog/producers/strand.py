"""What a task of the program saw last, and that nothing overlaps that could not be read back.

A task that is started inherits what its starter had seen; what it sees itself, its starter does not. So each
event names the one it follows from in the program's own order, whatever else ran beside it.
"""

from __future__ import annotations

import asyncio
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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left = False

    @property
    def last(self) -> int | None:
        """The event that this task saw last."""
        return _seen.get().get(self._number)

    def saw(self, seq: int) -> None:
        _seen.set({**_seen.get(), self._number: seq})

    def over(self) -> None:
        """Forgets the session in this task; it takes no more calls."""
        self._left = True
        _seen.set({number: seq for number, seq in _seen.get().items() if number != self._number})

    @contextmanager
    def ordered(self, what: str) -> Iterator[None]:
        """Around what has its place in the order of all: nothing may run beside it."""
        self._enter(what)
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
        self._enter(what)
        if self._ordered is not None:
            raise SessionMisused(f"{what} was asked for beside {self._ordered}", hint="await that first")
        self._beside += 1
        try:
            yield
        finally:
            self._beside -= 1

    def _enter(self, what: str) -> None:
        """Frameworks keep what they were given, and call it when and where they like."""
        if self._left:
            raise SessionMisused(f"{what} was asked for after its session was left", hint="open the session again")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        if loop is not self._loop:
            raise SessionMisused(
                f"{what} was asked for on another event loop than its session's",
                hint="a session belongs to one loop: have the framework call async functions, not threads of its own",
            )
