"""Where a program and its record part: what was recorded, what was asked for, and whose doing it is.

cause          when
harness        the program asks for something else than it did: other context, arguments, order, steps
environment    the program reads outside its session, or what is around it answers otherwise: a local tool, a step
model          the same context, by its hash, has another reply: found where the model is asked again
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from tracklog.schemas.errors import SessionError

__all__ = ["Cause", "Diverged", "Divergence"]

_WAY_OUT: Final = "run the program that wrote the record, or give the changed one a new trajectory"


class Cause(StrEnum):
    HARNESS = "harness"
    ENVIRONMENT = "environment"
    MODEL = "model"


class Divergence(NamedTuple):
    """The first difference. `seq` is that of the recorded event, None when the record has none there."""

    turn: int
    seq: int | None
    recorded: str
    asked: str
    cause: Cause = Cause.HARNESS

    def __str__(self) -> str:
        where = "the end of the record" if self.seq is None else f"event {self.seq}"
        return (
            f"turn {self.turn}, {where}: recorded is {self.recorded}; asked for is {self.asked} (cause: {self.cause})"
        )


class Diverged(SessionError):
    """The program asks for something else than is recorded. Nothing was guessed, nothing was done."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(str(divergence), hint=_WAY_OUT)
        self.divergence: Final = divergence
