"""One thing that `tracklog doctor` looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tracklog.schemas.errors import TracklogError

__all__ = ["Check", "tried"]


class Check(NamedTuple):
    """`ok` None: it could not be looked at, or is only worth knowing. `fix` says what to do when it is not well."""

    name: str
    ok: bool | None
    found: str
    fix: str = ""


def tried(name: str, look: Callable[[], Check]) -> Check:
    """What was found, or the error as a finding: one that fails stops none of the others."""
    try:
        return look()
    except TracklogError as error:
        return Check(name, False, error.message, error.hint)
    except OSError as error:
        return Check(name, False, str(error), "see that the disk can be written and is not full")
