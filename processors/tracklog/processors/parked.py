"""Trajectories that one processor could not take in: stopped where it raised, the others going on (DESIGN §10).

Kept in the store with the position, as everything: what was parked stays so wherever the processor goes on. A person
asks for another try (`tracklog projections retry`), and the owner of the partition reads the log again from there.

    parked   hash: trajectory id -> `Parked` as JSON
    retry    hash: trajectory ids for which another try was asked for
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import orjson

from tracklog.processors.writes import SetFields, Unset

PARKED: Final = "parked"
RETRY: Final = "retry"
ERROR_CHARS_MAX: Final = 500


class Parked(NamedTuple):
    """Where it stands: the event that was not taken in, why, and how many times that was tried."""

    offset: int
    seq: int
    event: str
    error: str
    rounds: int = 1


def parked_of(fields: Mapping[bytes, bytes]) -> dict[str, Parked]:
    """From the hash, by trajectory id."""
    return {name.decode(): Parked(**orjson.loads(value)) for name, value in fields.items()}


def parked_writes(
    before: Mapping[str, Parked], after: Mapping[str, Parked], tried: Iterable[str]
) -> Iterator[SetFields | Unset]:
    changed = {name: orjson.dumps(one._asdict()) for name, one in after.items() if before.get(name) != one}
    if changed:
        yield SetFields(PARKED, changed)
    gone = [name for name in before if name not in after]
    if gone:
        yield Unset(PARKED, gone)
    answered = list(tried)
    if answered:
        yield Unset(RETRY, answered)


def in_words(error: Exception) -> str:
    """An error in one line, bounded: it is shown to people and kept in the store."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= ERROR_CHARS_MAX else text[: ERROR_CHARS_MAX - 1] + "…"
