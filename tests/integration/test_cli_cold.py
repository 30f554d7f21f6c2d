"""`tracklog export` and `tracklog cold`, as a person calls them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.exporting import Exporting, exporting_on, runs
from tracklog.infra.stack.process import wait_until

WAIT_S = 60.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Exporting]:
    with exporting_on(f"sqlite:{tmp_path / 'log.db'}", "tracklog", tmp_path) as world:
        world.fill(*runs(6))
        yield world


def program(world: Exporting, *words: str) -> list[str]:
    settings = world.settings
    given = (f"home={settings.home}", f"blobs={settings.blobs.url}", "topics.partitions=3", "cold.age_s=1")
    sets = [word for one in given for word in ("--set", one)]
    return [sys.executable, "-m", "tests.support.command_line", "--log", settings.log.url, *sets, *words]


def called(world: Exporting, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(program(world, *words), capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def told(world: Exporting, *words: str, code: int = 0) -> Any:
    return json.loads(called(world, *words, "--json", code=code).stdout)


@pytest.fixture
def here(world: Exporting, tmp_path: Path) -> Exporting:
    """The log by the address that a program takes."""
    log = world.settings.log.model_copy(update={"url": f"sqlite:{tmp_path / 'log.db'}"})
    return world._replace(settings=world.settings.model_copy(update={"log": log}))


def test_a_whole_round(here: Exporting) -> None:
    to = here.settings.cold.url

    exported = told(here, "export", "--to", to, "--once")
    assert exported["events"] == len(here.expected())
    assert told(here, "cold", "stats", "--at", to)["events"]["rows"] == exported["events"]
    assert told(here, "cold", "compact", "--at", to)["events"]["files_added"] <= 2
    assert told(here, "cold", "vacuum", "--at", to, "--yes")["events"] == {"removed": 0, "orphans": 0, "foreign": []}
    verified = told(here, "cold", "verify", "--at", to)
    assert (verified["sound"], verified["rows"]) == (True, exported["events"])
    names = [one["name"] for one in told(here, "cold", "schema", "--at", to)["events"]]
    assert {"payload", "fingerprint", "tenant", "date", "model"} <= set(names)
    assert "events in" in called(here, "cold", "verify", "--at", to).stdout


@pytest.mark.parametrize("to", ["s3://", "gs:///folder", "ftp://host/x"])
def test_an_address_that_is_none_is_an_input_error_alone(here: Exporting, to: str) -> None:
    refused = called(here, "export", "--to", to, code=2)

    assert to in refused.stderr
    assert "WARN" not in refused.stderr


def test_a_fault_ends_verify_with_one(here: Exporting) -> None:
    to = here.settings.cold.url
    told(here, "export", "--to", to, "--once")
    file = Path(to) / "events" / here.table().files()[0].path
    file.chmod(0o644)
    file.write_bytes(b"nothing")

    verified = told(here, "cold", "verify", "--at", to, code=1)

    assert verified["faults_total"] > 0


def test_verify_looks_at_the_events_though_the_table_beside_is_gone(here: Exporting) -> None:
    to = here.settings.cold.url
    events = told(here, "export", "--to", to, "--once")["events"]
    shutil.rmtree(Path(to) / "undecodable")

    verified = told(here, "cold", "verify", "--at", to, code=1)

    assert (verified["rows"], [one["what"] for one in verified["faults"]]) == (events, ["missing table"])


def test_a_running_exporter_says_each_commit_and_ends_in_good_order(here: Exporting) -> None:
    command = program(here, "export", "--to", here.settings.cold.url, "--json")
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        wait_until((Path(here.settings.cold.url) / "events" / "_delta_log").is_dir, WAIT_S)
        wait_until(lambda: len(list(Path(here.settings.cold.url).glob("events/2*/*.parquet"))) > 0, WAIT_S)
        running.terminate()
        said, _ = running.communicate(timeout=WAIT_S)
    finally:
        running.kill()

    lines = [json.loads(line) for line in said.splitlines()]
    assert running.returncode == 0
    assert lines[0]["committed"]["events"] > 0
    assert set(lines[0]["lag"]) == {"0", "1", "2"}
    assert lines[-1]["ended"]["events"] == len(here.expected())


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_place_that_cannot_be_written_is_an_error_that_says_so(here: Exporting, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)

    done = called(here, "export", "--to", str(locked / "cold"), "--once", code=3)

    assert "not allowed" in done.stderr


def test_a_file_in_the_way_is_an_error_that_says_so(here: Exporting, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    done = called(here, "export", "--to", str(tmp_path / "file"), "--once", code=3)

    assert "a file stands where a directory is needed" in done.stderr


def test_a_place_where_no_directory_can_be_is_an_error_that_says_so(here: Exporting) -> None:
    done = called(here, "export", "--to", "/proc/cold", "--once", code=3)

    assert "no directory can be made there" in done.stderr
    assert "name another address" in done.stderr


def test_no_table_is_an_error_that_says_what_makes_one(here: Exporting, tmp_path: Path) -> None:
    assert "tracklog export" in called(here, "cold", "stats", "--at", str(tmp_path / "none"), code=3).stderr


def test_a_full_disk_is_an_error_that_says_so(here: Exporting) -> None:
    """A limit of the process is the nearest to a full disk that needs no rights."""
    words = program(here, "export", "--to", here.settings.cold.url, "--once")
    told(here, *words[words.index("export") :])
    here.fill(*runs(20, tenant="late"))
    script = "import resource, runpy, signal, sys\n" + (
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "sys.argv = ['tracklog', *sys.argv[1:]]\nrunpy.run_module('tests.support.command_line', run_name='__main__')\n"
    )

    done = subprocess.run([sys.executable, "-c", script, *words[3:]], capture_output=True, text=True, timeout=WAIT_S)

    assert done.returncode == 3
    assert "error: cannot write" in done.stderr
    assert "Traceback" not in done.stderr


def test_credentials_are_in_no_message(here: Exporting) -> None:
    sets = ("--set", "cold.options.secret_access_key=hush-hush", "--set", "cold.options.access_key_id=somebody")
    more = ("--set", "cold.options.endpoint=http://127.0.0.1:1", "--set", "cold.options.allow_http=true")

    done = called(here, "export", "--to", "s3://bucket/x", "--once", *sets, *more, "--set", "cold.timeout_s=1", code=3)

    assert "hush-hush" not in done.stderr + done.stdout
    assert "s3://bucket/x" in done.stderr
