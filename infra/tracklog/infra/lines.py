"""Lines that a process says about itself, as JSON: when, how bad, who, what, and what it is about (DESIGN §12).

What a line is about is said once, where the work on it begins (`about`), and is in every line that is said within:
by the work itself, and by whatever it calls, in the same task or thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final

import orjson

from tracklog.infra.clock import Clock

__all__ = ["AUDIT", "JsonLines", "about", "about_now"]

AUDIT: Final = "tracklog.audit"
"""The logger whose messages are JSON objects themselves."""
_SECONDS: Final = 1_000_000
_ABOUT: Final[ContextVar[Mapping[str, object]]] = ContextVar("tracklog_about")
_NOTHING: Final[Mapping[str, object]] = {}


@contextmanager
def about(**named: object) -> Iterator[None]:
    """Lines within are about these: `trajectory`, `call`, `topic`, `partition`, `offset`."""
    token = _ABOUT.set({**about_now(), **named})
    try:
        yield
    finally:
        _ABOUT.reset(token)


def about_now() -> Mapping[str, object]:
    return _ABOUT.get(_NOTHING)


class JsonLines(logging.Formatter):
    """One JSON object a line, for Python's own logging too. `role`: the command that runs."""

    def __init__(self, role: str, clock: Clock) -> None:
        super().__init__()
        self._role = role
        self._clock = clock

    def line(self, level: str, message: str, **more: object) -> str:
        """Without its end. What is None or empty is left out."""
        said = {"time": self._time(), "level": level, "role": self._role, **about_now(), "message": message, **more}
        kept = {name: value for name, value in said.items() if value is not None and value != ""}
        return orjson.dumps(kept, default=str).decode()

    def format(self, record: logging.LogRecord) -> str:
        message, level = record.getMessage(), record.levelname.lower()
        trace = self.formatException(record.exc_info) if record.exc_info else None
        if record.name == AUDIT:
            return self.line(level, "audit", logger=record.name, **_object(message))
        return self.line(level, message, logger=record.name, trace=trace)

    def _time(self) -> str:
        now = datetime.fromtimestamp(self._clock.now_us() / _SECONDS, UTC)
        return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _object(message: str) -> dict[str, object]:
    try:
        found = orjson.loads(message)
    except orjson.JSONDecodeError:
        found = message
    return {str(name): value for name, value in found.items()} if isinstance(found, dict) else {"said": message}
