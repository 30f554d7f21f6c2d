"""What an answer rests on: the version of a projection that readers follow, and how far that is folded.

Positions are read before what they stand for, so all that lies before them is in the answer; something behind them may
be too. They are read again after it: a version that was dropped or turned over meanwhile is looked up once more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.redis_script import ask
from tracklog.processors.agenda import NAME as AGENDA
from tracklog.processors.redis_store import LiveKeys, checkpoint_of, live_keys
from tracklog.processors.store import Checkpoint
from tracklog.processors.store_keys import StoreKeys
from tracklog.schemas.errors import NotFolded, RangeError, StoreConflict

__all__ = ["LOG", "Answer", "AsOf", "Pinned", "all_of", "checkpoints", "found_live", "looked", "one_of", "seen_of"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LOG: Final = "log"
"""The source of what was read from the log itself."""
TRIES_MAX: Final = 3
SEEN_MAX: Final = 1000
"""Partitions that a text of positions may name."""
_PLACE: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,18})")


class AsOf(NamedTuple):
    """`source`: what was read, NAME-vVERSION of a projection, or LOG. `positions`: the next offset of each partition
    that the answer rests on."""

    source: str
    positions: Mapping[int, int]

    def as_map(self) -> dict[str, int]:
        """As JSON has it: by partition."""
        return {str(partition): offset for partition, offset in self.positions.items()}

    def __str__(self) -> str:
        return ",".join(f"{partition}:{offset}" for partition, offset in sorted(self.positions.items()))


@dataclass(frozen=True, slots=True)
class Answer(Generic[T_co]):
    """What was found, and how far that is folded."""

    value: T_co
    as_of: AsOf


class Pinned(NamedTuple):
    """A projection to read, by the version that its pointer names, or by the one version that the reader knows."""

    name: str
    version: int | None = None


def seen_of(text: str) -> dict[int, int]:
    """The positions in `PARTITION:OFFSET[,...]`. Raises RangeError for what is none."""
    found = [_PLACE.fullmatch(one.strip()) for one in text.split(",")]
    if len(found) > SEEN_MAX or None in found:
        raise RangeError(
            f"seen: {text[:100]!r} names no positions", hint="write PARTITION:OFFSET, several with commas between"
        )
    return {int(one[1]): int(one[2]) for one in found if one is not None}


def found_live(client: RedisClient, prefix: str, pinned: Pinned) -> LiveKeys:
    """Raises NotFolded when there is none yet."""
    found = live_keys(client, prefix, pinned.name, pinned.version)
    if found is None:
        raise NotFolded(
            f"Redis holds no projection {pinned.name!r} under the prefix {prefix!r}",
            hint="keep `tracklog route` running: it folds the agenda"
            if pinned.name == AGENDA
            else f"keep `tracklog process` running, or fold it once: tracklog process {pinned.name} --once",
        )
    return found


def checkpoints(client: RedisClient, keys: StoreKeys, partitions: Iterable[int]) -> dict[int, Checkpoint | None]:
    chosen = list(partitions)
    answers = ask(client, [("HMGET", keys.checkpoint(p), *Checkpoint._fields) for p in chosen])
    return {partition: checkpoint_of(answer) for partition, answer in zip(chosen, answers, strict=True)}


def all_of(live: LiveKeys) -> Iterable[int]:
    return range(live.partitions)


def one_of(trajectory_id: str) -> Callable[[LiveKeys], Iterable[int]]:
    """The partition of a trajectory."""
    return lambda live: (partition_of(trajectory_id.encode(), live.partitions),)


def looked(
    client: RedisClient,
    prefix: str,
    pinned: Pinned,
    look: Callable[[LiveKeys], T],
    chosen: Callable[[LiveKeys], Iterable[int]] = all_of,
) -> Answer[T]:
    """What `look` finds in the chosen partitions. Blocks. Raises StoreError, StoreUnavailable, StoreConflict."""
    for _ in range(TRIES_MAX):
        live = found_live(client, prefix, pinned)
        partitions = list(chosen(live))
        before = checkpoints(client, live.keys, partitions)
        value = look(live)
        after = checkpoints(client, live.keys, partitions)
        lasts = all(_lasts(one, after[partition]) for partition, one in before.items())
        if lasts and live_keys(client, prefix, pinned.name, pinned.version) == live:
            return Answer(value, AsOf(f"{pinned.name}-v{live.keys.version}", positions_of(before)))
    raise StoreConflict(
        f"{prefix}:projection:{pinned.name} was dropped or turned over {TRIES_MAX} times while it was read",
        hint="read it again",
    )


def positions_of(found: Mapping[int, Checkpoint | None]) -> dict[int, int]:
    return {partition: 0 if one is None else one.position for partition, one in found.items()}


def _lasts(before: Checkpoint | None, after: Checkpoint | None) -> bool:
    return before is None or (after is not None and after.incarnation == before.incarnation)


def pairs(flat: Any) -> Iterable[tuple[int, str]]:
    """Scores and members of an answer WITHSCORES."""
    return ((round(float(score)), member.decode()) for member, score in zip(flat[::2], flat[1::2], strict=True))
