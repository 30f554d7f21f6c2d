"""Compaction and vacuum: rows stay, files go, two at once do no harm, and what is somebody else's is left alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.exporting import Exporting, exporting_on, runs
from tracklog.infra.clock import SystemClock
from tracklog.infra.cold.lock import upkeep_lock
from tracklog.infra.cold.upkeep import Compacted, compact, vacuum
from tracklog.schemas.errors import ColdConflict, InputError

GRACE_HOURS = 48
OLD_S = 10 * 86_400
WAIT_S = 30.0


def now_us() -> int:
    return SystemClock().now_us()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Exporting]:
    with exporting_on(f"sqlite:{tmp_path / 'log.db'}", "tracklog", tmp_path, cold={"rows_max": 40}) as world:
        world.fill(*runs(20, tenant="a/b c%20ü"))
        world.drain()
        yield world


def test_small_files_become_one_and_every_row_stays_in_order(world: Exporting) -> None:
    table, before = world.table(), world.exported()
    values = {tuple(file.values.items()) for file in table.files()}

    done = compact(table, now_us())

    assert done.files_added == len(table.files()) == len(values)
    assert done.files_removed > done.files_added
    assert world.exported() == before == world.expected()
    assert compact(world.table(), now_us()) == Compacted(0, 0, 0, 0)


def test_two_compactions_at_once_duplicate_no_row(world: Exporting) -> None:
    said: list[object] = []
    begin = threading.Barrier(2)

    def once() -> None:
        table = world.table()
        begin.wait(WAIT_S)
        try:
            said.append(compact(table, now_us()))
        except ColdConflict as error:
            said.append(error)

    threads = [threading.Thread(target=once, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)

    assert any(isinstance(one, Compacted) and one.files_removed for one in said)
    assert world.exported() == world.expected()


def test_two_compactions_without_the_lock_are_refused_by_the_pinned_version(world: Exporting) -> None:
    first, second = world.table(), world.table()
    first.handle.optimize.compact()

    with pytest.raises(Exception, match="concurrent transaction deleted the same data"):
        second.handle.optimize.compact()

    assert world.exported() == world.expected()


def test_exporting_goes_on_beside_a_compaction(world: Exporting) -> None:
    late = world.export()
    for partition in range(3):
        late.exporter.restore(partition)
    compact(world.table(), now_us())
    world.fill(*runs(20, tenant="late"))

    world.drain()

    assert world.exported() == world.expected()


def test_while_one_holds_the_lock_the_other_says_so(world: Exporting) -> None:
    table = world.table()

    with upkeep_lock(table.place, now_us()), pytest.raises(ColdConflict, match="another process"):
        compact(world.table(), now_us())


def test_vacuum_takes_orphans_and_leaves_what_is_fresh_or_not_ours(world: Exporting) -> None:
    table = world.table()
    assert table.place.folder is not None
    day = next(iter(table.files())).path.partition("/")[0]
    names = [f"{day}/{'0' * 32}-1.parquet", f"{day}/{'0' * 32}-2.parquet", "notes.txt", "theirs.parquet"]
    for name in names:
        (table.place.folder / name).write_bytes(b"x")
    for name in (names[0], *names[2:]):
        os.utime(table.place.folder / name, (now_us() / 1e6 - OLD_S,) * 2)
    compact(table, now_us())

    looked = vacuum(table, now_us(), grace_hours=GRACE_HOURS)
    done = vacuum(table, now_us(), grace_hours=GRACE_HOURS, dry_run=False)

    assert looked == done
    assert (done.removed, done.orphans, sorted(done.foreign)) == (0, 1, ["notes.txt", "theirs.parquet"])
    assert [(table.place.folder / name).exists() for name in names] == [False, True, True, True]
    assert world.exported() == world.expected()


def test_files_that_only_older_versions_name_go_after_the_grace_time(world: Exporting) -> None:
    table = world.table()
    before = {file.path for file in table.files()}
    compact(table, now_us())

    assert vacuum(table, now_us(), grace_hours=GRACE_HOURS, dry_run=False).removed == 0
    assert table.place.folder is not None
    assert all((table.place.folder / path).exists() for path in before)


def test_a_grace_time_that_a_wrong_clock_could_use_up_is_refused(world: Exporting) -> None:
    with pytest.raises(InputError, match="too short"):
        vacuum(world.table(), now_us(), grace_hours=24)
