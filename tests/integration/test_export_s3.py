"""Exporting to an S3 server: exact there too, patient with one that fails, and plain about one that will not do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.exporting import exporting_on, runs
from tests.support.s3_server import s3_server
from tracklog.consumers.cold.verify import verification_of
from tracklog.infra.clock import SystemClock
from tracklog.infra.cold.table import ColdTable
from tracklog.infra.cold.upkeep import compact
from tracklog.schemas.errors import ColdError, ColdMissing, ColdRefused


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with s3_server() as options:
        yield options


def on_s3(options: dict[str, str], folder: Path, bucket: str = "bucket") -> dict[str, object]:
    return {"url": f"s3://{bucket}/{folder.name}", "options": options, "timeout_s": 10.0, "rows_max": 60}


def test_every_record_is_there_once_also_compacted_and_verified(s3: dict[str, str], tmp_path: Path) -> None:
    with exporting_on(f"sqlite:{tmp_path / 'log.db'}", "tracklog", tmp_path, cold=on_s3(s3, tmp_path)) as world:
        world.fill(*runs(10))
        world.drain()
        assert world.exported() == world.expected()

        compact(world.table(), SystemClock().now_us())

        found = verification_of(world.settings)
        assert [one.faults for one in found.histories.reports() if one.faults] == []
        assert (found.sound, found.rows) == (True, len(world.expected()))


def test_two_exporters_that_both_own_everything_write_nothing_twice(s3: dict[str, str], tmp_path: Path) -> None:
    with exporting_on(f"sqlite:{tmp_path / 'log.db'}", "tracklog", tmp_path, cold=on_s3(s3, tmp_path)) as world:
        world.fill(*runs(6))
        slow = world.export()
        for partition in range(3):
            slow.exporter.restore(partition)
        world.drain()
        reader = world.log.reader(world.topic, dict.fromkeys(range(3), 0))
        while records := reader.poll(500, 0.0):
            for partition in range(3):
                slow.exporter.fold(partition, [one for one in records if one.partition == partition], 0)
        slow.exporter.commit()

        assert world.exported() == world.expected()


@pytest.mark.parametrize("fault", ["--failing", "--slow"])
def test_a_store_whose_every_second_put_fails_or_takes_its_time_gets_every_record_once(
    tmp_path: Path, fault: str
) -> None:
    with (
        s3_server(fault) as options,
        exporting_on(f"sqlite:{tmp_path / 'log.db'}", "tracklog", tmp_path, cold=on_s3(options, tmp_path)) as world,
    ):
        world.fill(*runs(6))
        world.drain()

        assert world.exported() == world.expected()


def test_a_store_without_conditional_puts_is_refused(tmp_path: Path) -> None:
    with (
        s3_server("--unconditional") as options,
        exporting_on(f"sqlite:{tmp_path / 'log.db'}", "tracklog", tmp_path, cold=on_s3(options, tmp_path)) as world,
        pytest.raises(ColdRefused, match="a second time") as caught,
    ):
        world.export()
    assert "conditional puts" in caught.value.hint


@pytest.mark.parametrize("fault", ["--stranger", "--read-only"])
def test_a_store_that_does_not_know_us_or_lets_nobody_write_is_named(tmp_path: Path, fault: str) -> None:
    with (
        s3_server(fault) as options,
        exporting_on(f"sqlite:{tmp_path / 'log.db'}", "tracklog", tmp_path, cold=on_s3(options, tmp_path)) as world,
        pytest.raises(ColdRefused, match=tmp_path.name) as caught,
    ):
        world.export()
    assert "the credentials and the rights" in caught.value.hint
    assert "hush-hush" not in str(caught.value)


def test_a_bucket_that_is_not_there_is_named(s3: dict[str, str], tmp_path: Path) -> None:
    cold = on_s3(s3, tmp_path, "absent")
    with (
        exporting_on(f"sqlite:{tmp_path / 'log.db'}", "tracklog", tmp_path, cold=cold) as world,
        pytest.raises(ColdMissing, match="absent") as caught,
    ):
        world.export()
    assert "no such bucket" in caught.value.hint
    assert "hush-hush" not in str(caught.value)


def test_a_plain_http_endpoint_that_was_not_allowed_is_named_with_its_option(
    s3: dict[str, str], tmp_path: Path
) -> None:
    options = {name: value for name, value in s3.items() if name != "allow_http"}
    with (
        exporting_on(f"sqlite:{tmp_path / 'log.db'}", "tracklog", tmp_path, cold=on_s3(options, tmp_path)) as world,
        pytest.raises(ColdRefused, match=tmp_path.name) as caught,
    ):
        world.export()
    assert "cold.options.allow_http" in caught.value.hint


def test_a_table_that_is_not_there_is_no_missing_bucket(s3: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ColdMissing) as caught:
        ColdTable.open(f"s3://bucket/{tmp_path.name}", s3, timeout_s=10.0)
    assert "no table" in caught.value.hint


def test_a_server_that_is_not_there_is_an_error_within_the_bound(tmp_path: Path) -> None:
    options = {"endpoint": "http://127.0.0.1:1", "region": "x", "access_key_id": "a", "secret_access_key": "hush-hush"}
    cold = {**on_s3({**options, "allow_http": "true"}, tmp_path), "timeout_s": 1.0}
    with (
        exporting_on(f"sqlite:{tmp_path / 'log.db'}", "tracklog", tmp_path, cold=cold) as world,
        pytest.raises(ColdError, match=tmp_path.name) as caught,
    ):
        world.export()
    assert "hush-hush" not in str(caught.value)
