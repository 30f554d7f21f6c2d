"""What is folded into Redis: which projections, how far, which trajectories stopped in them; built anew, compared,
dropped, tried again (docs/processors.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tracklog.consumers.wiring import lag_of
from tracklog.infra.clock import Clock, SystemClock, SystemEntropy
from tracklog.infra.log.lag import lags
from tracklog.infra.log.port import Log, TopicInfo
from tracklog.infra.log.trimmed import check_whole
from tracklog.infra.redis_client import RedisClient, store_errors
from tracklog.infra.redis_script import ask
from tracklog.infra.settings import Settings
from tracklog.processors.comparing import Compared, compare, digest
from tracklog.processors.parked import PARKED, RETRY, Parked, parked_of
from tracklog.processors.partial import NAMED_MAX, PARTIAL, Partial, partial_of
from tracklog.processors.redis_store import SCAN_KEYS, LiveKeys, RedisStore, checkpoint_of, live_keys, point_to
from tracklog.processors.refolding import Refold
from tracklog.processors.running import AnyProcessor, store_of
from tracklog.processors.store import Checkpoint
from tracklog.processors.store_keys import StoreKeys, pointer_key
from tracklog.processors.trajectories import Trajectories
from tracklog.schemas.errors import InputError

__all__ = ["Behind", "Known", "Projections", "Rebuilt", "Switched"]


class Known(NamedTuple):
    """A projection in Redis. `behind`: records between its positions and the ends of the log. `partial`: trajectories
    whose beginning was trimmed before it was folded."""

    name: str
    version: int
    build: int
    positions: dict[int, int]
    behind: int
    parked: dict[str, tuple[int, Parked]]
    partial: Partial


class Rebuilt(NamedTuple):
    """`records` were folded into `build`; `equal` to what stood there, None when there was nothing to compare with."""

    build: int
    records: int
    equal: bool | None


class Behind(NamedTuple):
    """A partition of a projection. `records` from its position to the end (holes count); `age_s` of the oldest that it
    has not taken in, 0 without any, None when that could not be read."""

    name: str
    version: int
    partition: int
    position: int
    records: int
    age_s: float | None


class Switched(NamedTuple):
    """Versions that readers followed before and follow now, and how many records that is behind."""

    before: int
    now: int
    behind: int


ACCEPT_GAP: Final = "--accept-gap"
_KEEPING_NO_RECORDS: Final = {"warm_log_events_max": 0}
"""What is folded to be compared needs no memory for them. Who leaves is told by the same settings."""


@dataclass(frozen=True, slots=True)
class Projections:
    """The projections of one installation."""

    log: Log
    client: RedisClient
    settings: Settings

    @property
    def _topic(self) -> str:
        return self.settings.topic_names.events

    def known(self) -> list[Known]:
        """All that readers are pointed to, by name. Raises StoreUnavailable, LogUnavailable."""
        start = pointer_key(self.settings.topic_names.prefix, "")
        with store_errors(self.client):
            names = sorted(key.decode().removeprefix(start) for key in self.client.scan_iter(match=f"{start}*"))
        return [self.one(name) for name in names]

    def one(self, name: str) -> Known:
        """Raises InputError for a name that nobody has folded."""
        keys, partitions = self._live(name)
        positions = {p: 0 if one is None else one.position for p, one in self._checkpoints(keys, partitions).items()}
        parked = {
            trajectory_id: (partition, one)
            for partition in range(partitions)
            for trajectory_id, one in self._parked(keys, partition).items()
        }
        behind, partial = lag_of(self.log, self._topic, positions), self._partial(keys, partitions)
        return Known(name, keys.version, keys.build, positions, behind, parked, partial)

    def retry(self, name: str, trajectory_ids: Sequence[str]) -> list[str]:
        """Asks for another try of parked trajectories, all of them where none is named; gives those asked for.

        Raises InputError for one that is not parked. Done by whoever folds the partition, at its next step.
        """
        keys, _ = self._live(name)
        parked = self.one(name).parked
        for one in trajectory_ids:
            if one not in parked:
                raise InputError(
                    f"{one!r} is not parked in {name}", hint="`tracklog projections list --json` names those that are"
                )
        asked = sorted(trajectory_ids or parked)
        ask(self.client, [("HSET", keys.key(parked[one][0], RETRY), one, "") for one in asked])
        return asked

    def verify(
        self, processor: AnyProcessor, progress: Callable[[int], object], *, accept_gap: bool = False
    ) -> Compared:
        """Folds the log afresh in memory and compares. Raises InputError, StoreConflict when it moves too fast, and
        OffsetTrimmed where the log has no beginning, unless that is accepted."""
        keys, partitions = self._live(processor.name)
        if keys.version != processor.version:
            raise InputError(
                f"Redis has version {keys.version} of {processor.name}; the processor at hand is version"
                f" {processor.version}",
                hint="load the one that is live, or rebuild",
            )
        if not accept_gap:
            check_whole(self.log, self._topic, ACCEPT_GAP)
        return compare(
            Trajectories(self.settings.projection.model_copy(update=_KEEPING_NO_RECORDS))
            if isinstance(processor, Trajectories)
            else processor,
            self._store(processor, self.log.describe(self._topic), keys.build),
            self.log,
            self.settings,
            partitions=partitions,
            clock=SystemClock(),
            progress=progress,
        )

    def rebuild(
        self, processor: AnyProcessor, progress: Callable[[int], object], *, accept_gap: bool = False
    ) -> Rebuilt:
        """Folds the log from its beginning beside what is live, compares both, and turns readers and the processes
        that fold over to it; then drops the old one. Killed before that, nothing has changed. Whoever folds the version
        goes on meanwhile. Raises OffsetTrimmed, with nothing changed, where the log has no beginning, unless that is
        accepted.
        """
        if not accept_gap:
            check_whole(self.log, self._topic, ACCEPT_GAP)
        info, name = self.log.describe(self._topic), processor.name
        live = live_keys(self.client, self.settings.topic_names.prefix, name)
        old_build = self._store(processor, info, None).live_build()
        old, new = self._store(processor, info, old_build), self._store(processor, info, old_build + 1)
        partitions = info.spec.partitions
        for partition in range(partitions):  # what a rebuild left that was killed
            new.drop(partition)
        folding = Refold(
            processor,
            new,
            self.log,
            self.settings,
            partitions=partitions,
            clock=SystemClock(),
            progress=progress,
        )

        def same_in(partition: int) -> bool:
            return folding.beside(
                old,
                partition,
                lambda _: digest(name, old.content(partition)) == digest(name, new.content(partition)),
            )

        compares = live is not None and live.keys.version == processor.version
        equal = all(same_in(partition) for partition in range(partitions)) if compares else None
        folding.up_to()
        new.publish(partitions, replace=True)
        for partition in range(partitions):
            old.drop(partition)
        return Rebuilt(new.keys.build, folding.records, equal)

    def lag(self, clock: Clock) -> list[Behind]:
        """How far each projection is behind, by partition. Raises StoreUnavailable, LogUnavailable."""
        found, now_us = list[Behind](), clock.now_us()
        for one in self.known():
            for partition, lag in lags(self.log, self._topic, one.positions, clock).items():
                position = one.positions[partition]
                found.append(Behind(one.name, one.version, partition, position, lag.offsets, lag.seconds(now_us)))
        return found

    def switch(self, name: str, version: int, *, behind_max: int) -> Switched:
        """Turns readers over to a version that another process has folded; the one before stays until it is dropped.

        Raises InputError where nobody has folded that version, or it is more records behind the log.
        """
        keys, partitions = self._live(name)
        found = live_keys(self.client, keys.prefix, name, version)
        assert found is not None, "it was there a moment ago"
        held = self._checkpoints(found.keys, partitions)
        if not any(held.values()):
            raise InputError(
                f"nobody has folded version {version} of {name}",
                hint=f"run it: tracklog process {name}; or: tracklog projections rebuild {name}",
            )
        positions = {p: 0 if one is None else one.position for p, one in held.items()}
        behind = lag_of(self.log, self._topic, positions)
        if behind > behind_max:
            raise InputError(
                f"version {version} of {name} is {behind} records behind the log, more than {behind_max}",
                hint="wait until it has caught up (tracklog projections lag), or allow more with --behind-max",
            )
        point_to(self.client, found)
        return Switched(keys.version, version, behind)

    def drop(self, name: str, version: int | None) -> int:
        """Deletes a version of a projection, all builds, and its pointer when readers follow it; gives the number of
        keys. A process that still folds it begins anew. Raises InputError."""
        keys, _ = self._live(name)
        version = keys.version if version is None else version
        count = 0
        with store_errors(self.client):
            for key in self.client.scan_iter(match=f"{keys.prefix}:{{*}}:{name}:v{version}[:.]*", count=SCAN_KEYS):
                count += int(self.client.unlink(key))
            if version == keys.version:
                count += int(self.client.unlink(pointer_key(keys.prefix, name)))
        return count

    def _live(self, name: str) -> LiveKeys:
        found = live_keys(self.client, self.settings.topic_names.prefix, name)
        if found is None:
            raise InputError(
                f"Redis holds no projection {name!r} under the prefix {self.settings.topic_names.prefix!r}",
                hint="`tracklog projections list` names those there are",
            )
        return found

    def _store(self, processor: AnyProcessor, info: TopicInfo, build: int | None) -> RedisStore:
        return store_of(processor, info, self.client, self.settings, SystemEntropy(), build=build)

    def _checkpoints(self, keys: StoreKeys, partitions: int) -> dict[int, Checkpoint | None]:
        commands = [("HMGET", keys.checkpoint(p), *Checkpoint._fields) for p in range(partitions)]
        return {p: checkpoint_of(answer) for p, answer in enumerate(ask(self.client, commands))}

    def _partial(self, keys: StoreKeys, partitions: int) -> Partial:
        """Where the log begins at its beginning there are none: a record may only have come too early."""
        trimmed = [one for one in range(partitions) if self.log.bounds(self._topic, one).first > 0]
        names = [keys.key(one, PARTIAL) for one in trimmed]
        sizes = ask(self.client, [("ZCARD", name) for name in names])
        some = ask(self.client, [("ZRANGE", name, 0, NAMED_MAX - 1) for name in names])
        return partial_of((size, [m.decode() for m in found]) for size, found in zip(sizes, some, strict=True))

    def _parked(self, keys: StoreKeys, partition: int) -> Mapping[str, Parked]:
        (fields,) = ask(self.client, [("HGETALL", keys.key(partition, PARKED))])
        return parked_of(fields)


def tried(known: Sequence[Known]) -> Iterator[tuple[str, str, Parked]]:
    """Every parked trajectory: projection, trajectory, what stopped it."""
    for one in known:
        for trajectory_id, (_, parked) in sorted(one.parked.items()):
            yield one.name, trajectory_id, parked
