"""Ended trajectories leave by the order of the log: whatever the batches, what is stored is what plain code says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.support.chains import Chain, Made, run_of
from tracklog.infra.log.port import Record
from tracklog.infra.settings_sections import ProjectionSettings
from tracklog.processors.bundle import Bundle
from tracklog.processors.indexes import BY_TIME
from tracklog.processors.leaving import ENDED
from tracklog.processors.memory_store import MemoryStore
from tracklog.processors.place import Place, place_of
from tracklog.processors.processor import Seen
from tracklog.processors.projection import Projection
from tracklog.processors.store_keys import StoreKeys
from tracklog.processors.trajectories import Trajectories
from tracklog.processors.trajectory import Trajectory, see
from tracklog.schemas import events as ev
from tracklog.schemas.codec import decode_event
from tracklog.schemas.state import State, dump_state
from tracklog.schemas.values import Body, TargetKind

RUNS: Final = 6
START_MS: Final = 1_700_000_000_000


class Case(NamedTuple):
    """`age_ms` and `most`: 0 for no bound."""

    records: list[Record]
    age_ms: int
    most: int
    batches: list[int]


def chain(number: int) -> list[Made]:
    """One run: some never end, to some people say something after their end, and former owners append again."""
    made: Chain = run_of(f"run-{number}", turns=1, tenant=("acme", "umbrella")[number % 2])
    records = list(made.records)
    if number % 3 == 0:
        return records[:-1]
    made.claim("judge")
    judged = ev.Annotated(target=TargetKind.TRAJECTORY, name="n", value=Body.of("1"), source="ada", client_id="c")
    return [*records, records[0], made.records[-1], made.add(judged), records[2]]


CHAINS: Final = [chain(number) for number in range(RUNS)]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    left = [list(one) for one in CHAINS]
    records, now_ms = list[Record](), START_MS
    while any(left):
        one = draw(st.sampled_from([one for one in left if one]))
        for made in [one.pop(0) for _ in range(min(len(one), draw(st.integers(1, 8))))]:
            now_ms += draw(st.sampled_from([0, 1, 40, 300, -60]))  # another broker's clock may be behind
            records.append(Record("t", 0, len(records), now_ms, made.key, made.value, made.headers))
    batches = draw(st.lists(st.integers(1, 30), min_size=1, max_size=10))
    return Case(records, draw(st.sampled_from([0, 50, 400])), draw(st.sampled_from([0, 1, 2])), batches)


def folded(case: Case, batches: Sequence[int], *, forgetful: bool = False) -> dict[str, Any]:
    """What the projection stores. `forgetful`: another process takes over after each batch."""
    store = MemoryStore(StoreKeys("pre", "trajectories", 1))
    settings = ProjectionSettings(warm_log_events_max=0, ended_age_s=case.age_ms / 1000, ended_per_tenant_max=case.most)
    bundle, at, turn = None, 0, 0
    while at < len(case.records):
        if bundle is None or forgetful:
            bundle = Bundle([Projection(Trajectories(settings), store, partitions=1, cached_max=2)], partitions=1)
            bundle.restore(0)
        batch = case.records[at : at + batches[turn % len(batches)]]
        at, turn = at + len(batch), turn + 1
        bundle.fold(0, batch, at)()
    return dict(store.content(0))


def expected(case: Case) -> tuple[dict[str, Trajectory], dict[str, Place]]:
    """Those that stay, and the places of those that have left: record by record, by plain code."""
    here, left, now_ms = dict[str, Trajectory](), dict[str, Place](), 0

    def leave(name: str) -> None:
        head = here.pop(name).state.head
        left[name] = Place(head.epoch, head.seq, head.hash)

    for record in case.records:
        event = decode_event(record.key, record.value, record.headers)
        name, now_ms = event.envelope.trajectory_id, max(now_ms, record.timestamp_ms)
        for one in [n for n, t in here.items() if t.state.ended and case.age_ms and t.last_ms + case.age_ms <= now_ms]:
            leave(one)
        if name in left:
            place, envelope = left[name], event.envelope
            if (envelope.seq, envelope.prev_hash, envelope.epoch) == (place.seq + 1, place.hash, place.epoch):
                claims = isinstance(event.body, ev.OwnershipClaimed)
                left[name] = Place(place.epoch + claims, envelope.seq, event.hash)
            continue
        here[name] = see(here.get(name, Trajectory(State(name))), Seen(event, record))
        tenant = here[name].state.tenant
        ended = sorted((t.last_ms, n) for n, t in here.items() if t.state.ended and t.state.tenant == tenant)
        for _, one in ended[: len(ended) - case.most] if case.most else ():
            leave(one)
    return here, left


@given(cases())
def test_what_is_stored_is_what_plain_code_says_whatever_the_batches(case: Case) -> None:
    stored = folded(case, case.batches)

    here, left = expected(case)
    assert {key[2:]: fields[b"state"] for key, fields in stored.items() if key.startswith("t:")} == {
        name: dump_state(one.state) for name, one in here.items()
    }
    assert {key[2:]: place_of(fields[b"at"]) for key, fields in stored.items() if key.startswith("h:")} == left
    assert {name.decode() for name in stored.get(BY_TIME, {})} == set(here)
    assert {name.decode() for name in stored.get(ENDED, {})} == {n for n, one in here.items() if one.state.ended}
    assert {key for key in stored if key.startswith("offsets:")} == {f"offsets:{name}" for name in here}
    # and so by other batches, and by processes that take over from one another
    assert folded(case, [1]) == stored
    assert folded(case, [len(case.records)]) == stored
    assert folded(case, case.batches, forgetful=True) == stored
