"""A view: one processor folded into the store, shown what was accepted, whatever it does with it (DESIGN §10).

h:TRAJECTORY   hash: `at`, how far the trajectory is folded
s:KEY          hash: `state`, the processor's snapshot
parked, retry  see `parked`
NAME[:...]     what the processor writes, by its layout
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import orjson

from tracklog.infra.log.port import Record
from tracklog.processors.checkpoints import Checkpoints
from tracklog.processors.member import Folding
from tracklog.processors.outlet import Outlet
from tracklog.processors.parked import PARKED, RETRY, Parked, parked_of
from tracklog.processors.place import FIELD, Place, place_of
from tracklog.processors.processor import Processor
from tracklog.processors.state_cache import StateCache
from tracklog.processors.store import Store
from tracklog.processors.view_folding import EXPIRY, STATE, UNTIL, Held, Loaded, ViewFolding
from tracklog.processors.writes import Write
from tracklog.schemas.errors import InvalidProcessor

S = TypeVar("S")

FORGET_MAX: Final = 10_000
"""States that leave in one step; the others with the next."""

Reread = Callable[[int, int, int], Iterator[Record]]
"""The records of a partition from one offset to another, end exclusive."""


@dataclass(frozen=True, slots=True)
class ViewBounds:
    """`cached_max`: states and heads held in memory, each. `state_bytes_max`: of one snapshot. `parked_max`: parked
    trajectories of one partition."""

    cached_max: int = 10_000
    state_bytes_max: int = 1024 * 1024
    parked_max: int = 1000


class View(Generic[S]):
    """See `Member`. `pause` waits a number of seconds between two tries. `loaded` counts states read from the store."""

    def __init__(
        self,
        processor: Processor[S],
        store: Store,
        *,
        partitions: int,
        bounds: ViewBounds,
        reread: Reread,
        pause: Callable[[float], object],
    ) -> None:
        self.processor = processor
        self.bounds = bounds
        self.reread = reread
        self.pause = pause
        self.partitions = partitions
        self._store = store
        self._checkpoints = Checkpoints(store, partitions)
        self._states: StateCache[Held[S]] = StateCache(bounds.cached_max)
        self._places: StateCache[Place] = StateCache(bounds.cached_max)
        self._parked: dict[int, Mapping[str, Parked]] = {}
        self._by_trajectory = type(processor).key is Processor.key
        self._outlet = processor if isinstance(processor, Outlet) else None
        self.loaded = 0

    @property
    def reads(self) -> frozenset[str] | None:
        return self.processor.reads

    def restore(self, partition: int) -> int:
        layout = orjson.dumps(self.processor.layout, option=orjson.OPT_SORT_KEYS).decode()
        said = self._store.declare(layout)
        if said != layout:
            raise InvalidProcessor(
                f"{self.processor.name}, version {self.processor.version}, has the layout {layout} and had {said}",
                hint="a changed layout needs a new version, which is folded beside the old one",
            )
        position = self._checkpoints.restore(partition)
        (fields,) = self._hashes(partition, [PARKED])
        self._parked[partition] = parked_of(fields)
        return position

    def forget(self, partition: int) -> None:
        self._checkpoints.forget(partition)
        self._states.forget(partition)
        self._places.forget(partition)
        self._parked.pop(partition, None)

    def parked(self, partition: int) -> Mapping[str, Parked]:
        """By trajectory id."""
        return self._parked.get(partition, {})

    def begin(self, partition: int, records: Sequence[Record]) -> Folding:
        """Tries parked trajectories again first, where that was asked for."""
        return self.open(partition, records, careful=False)

    def open(self, partition: int, records: Sequence[Record], *, careful: bool) -> ViewFolding[S]:
        """`careful`: what is written is checked after every event, so that a wrong one is known."""
        if self._outlet is not None:
            self._outlet.opened()
        expected = self._checkpoints.expected(partition)
        start = 0 if expected is None else expected.position
        parked = self.parked(partition)
        asked: list[str] = []
        if parked:
            (fields,) = self._hashes(partition, [RETRY])
            asked = sorted(name.decode() for name in fields)
        new = dict.fromkeys(record.key for record in records if record.key is not None and record.offset >= start)
        ids = dict.fromkeys((*(key.decode(errors="replace") for key in new), *parked.keys() & asked))
        loaded = self._load(partition, list(ids))
        folding = ViewFolding(self, partition, records, start, parked, loaded, careful=careful)
        folding.try_again(asked)
        return folding

    def held(self, partition: int, key: str) -> Held[S] | None:
        """The state as the store holds it, None for nothing; from memory where it is there."""
        held = self._states.get(partition, key)
        if held is not None:
            return held
        (fields,) = self._hashes(partition, [f"s:{key}"])
        return self._restored(key, fields)

    def drop_state(self, partition: int, key: str) -> None:
        self._states.drop(partition, key)

    def log_ms(self, partition: int) -> int:
        """The time of the log at the stored position (`Checkpoints.log_ms`)."""
        return self._checkpoints.log_ms(partition)

    def due(self, partition: int, now_ms: int) -> list[str]:
        """Keys of states whose time is over, FORGET_MAX at most."""
        expected = self._checkpoints.expected(partition)
        found = self._store.ranked(partition, expected, EXPIRY, FORGET_MAX, score_max=now_ms)
        return [key for _, key in found.first]

    def _restored(self, key: str, fields: Mapping[bytes, bytes]) -> Held[S] | None:
        if STATE not in fields:
            return None
        self.loaded += 1
        until = fields.get(UNTIL)
        return Held(self.processor.restore(key, fields[STATE]), None if until is None else int(until))

    def commit(
        self,
        partition: int,
        position: int,
        writes: Sequence[Write],
        states: Mapping[str, Held[S]],
        places: Mapping[str, Place],
        parked: Mapping[str, Parked],
        log_ms: int | None,
    ) -> Callable[[], None]:
        """Stores what a batch changed, and only then remembers it. See `Folding.commit`."""
        if self._outlet is not None:
            self._outlet.deliver()
        sent = self._checkpoints.send(partition, position, writes, log_ms)

        def stored() -> None:
            sent()
            for key, state in states.items():
                self._states.put(partition, key, state)
            for trajectory_id, place in places.items():
                self._places.put(partition, trajectory_id, place)
            self._parked[partition] = parked

        return stored

    def _load(self, partition: int, ids: Sequence[str]) -> Loaded[S]:
        """How far trajectories are folded, and their states where these are kept by trajectory: one round trip."""
        places = {one: place for one in ids if (place := self._places.get(partition, one)) is not None}
        states: dict[str, Held[S] | None] = {}
        if self._by_trajectory:
            states = {one: state for one in ids if (state := self._states.get(partition, one)) is not None}
        no_place = [one for one in ids if one not in places]
        no_state = [one for one in ids if one not in states] if self._by_trajectory else []
        found = self._hashes(partition, [*(f"h:{one}" for one in no_place), *(f"s:{one}" for one in no_state)])
        places |= {one: place_of(found[n].get(FIELD)) for n, one in enumerate(no_place)}
        for one, fields in zip(no_state, found[len(no_place) :], strict=True):
            states[one] = self._restored(one, fields)
        return Loaded(places, states)

    def _hashes(self, partition: int, keys: Sequence[str]) -> list[Mapping[bytes, bytes]]:
        return self._store.hashes(partition, self._checkpoints.expected(partition), keys)
