from __future__ import annotations

from tests.support.chains import Chain, run_of
from tracklog.infra.log.port import Record
from tracklog.processors.indexes import index_writes, indexes_of
from tracklog.processors.processor import Seen
from tracklog.processors.trajectory import STATUSES, Trajectory, fields_of, see, trajectory_from
from tracklog.processors.writes import Rank, Unrank
from tracklog.schemas.codec import decode_event
from tracklog.schemas.fold import fold_all
from tracklog.schemas.lifecycle import TrajectoryStatus
from tracklog.schemas.state import State


def seen_of(chain: Chain, *, partition: int = 2, first_offset: int = 10) -> list[Seen]:
    return [
        Seen(
            decode_event(made.key, made.value, made.headers),
            Record("t", partition, first_offset + 2 * n, 1_000 + n, made.key, made.value, made.headers),
        )
        for n, made in enumerate(chain.records)
    ]


def folded(seen: list[Seen], name: str = "a") -> Trajectory:
    trajectory = Trajectory(State(name))
    for one in seen:
        trajectory = see(trajectory, one)
    return trajectory


def test_a_trajectory_has_the_state_of_the_fold_and_the_place_of_its_records() -> None:
    seen = seen_of(run_of("a", turns=2))

    trajectory = folded(seen)

    assert trajectory.state == fold_all(State("a"), [one.event for one in seen])
    last = len(seen) - 1
    assert trajectory[1:] == (2, 10, 10 + 2 * last, 1_000, 1_000 + last)


def test_partition_0_and_offset_0_are_places() -> None:
    trajectory = folded(seen_of(run_of("a"), partition=0, first_offset=0)[:2])

    assert trajectory[1:] == (0, 0, 2, 1_000, 1_001)


def test_an_append_time_that_goes_back_does_not_move_a_trajectory_back() -> None:
    seen = seen_of(run_of("a"))[:2]
    late = seen[1]._replace(record=seen[1].record._replace(timestamp_ms=5))

    assert folded([seen[0], late]).last_ms == 1_000


def test_a_trajectory_comes_back_from_its_fields() -> None:
    trajectory = folded(seen_of(run_of("a", labels={"order": "W1"})))
    stored = {
        name.encode(): value if isinstance(value, bytes) else str(value).encode()
        for name, value in fields_of(trajectory).items()
    }

    assert trajectory_from(stored) == trajectory


def test_a_trajectory_is_in_the_indexes_of_its_facts() -> None:
    trajectory = folded(seen_of(run_of("a", tenant="acme", tools=("x", "y"), model="m", labels={"k": "v"})))

    assert set(indexes_of(trajectory)) == {
        "by:time",
        "by:status:completed",
        "by:tenant:acme",
        "by:tool:x",
        "by:tool:y",
        "by:model:m",
        "by:label:k=v",
    }


def test_a_status_that_changed_takes_the_trajectory_out_of_the_old_index() -> None:
    seen = seen_of(run_of("a"))
    before, after = folded(seen[:-1]), folded(seen)

    rank, unrank = index_writes(before, after)

    assert isinstance(rank, Rank)
    assert "by:status:completed" in rank.keys
    assert rank.score == after.last_ms
    assert unrank == Unrank(["by:status:running"], "a")
    assert len(list(index_writes(before, before))) == 1


def test_every_status_has_a_name_for_lists() -> None:
    assert {status.value for status in TrajectoryStatus} < set(STATUSES)
    assert len(set(STATUSES)) == len(STATUSES)
