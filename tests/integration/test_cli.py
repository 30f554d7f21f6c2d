"""The commands on an embedded log and Redis, one after another as a person would."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.chains import Made, append_all, run_of
from tests.support.tampering import flipped
from tracklog.consumers.cli.app import app
from tracklog.infra.log.open import open_log
from tracklog.infra.log.partitioner import partition_of
from tracklog.producers.data import shipped_file
from tracklog.schemas.events import OwnershipReleased
from tracklog.schemas.record_file import read_records
from tracklog.schemas.topics import Topics

RUNS = 6
Tracklog = Callable[..., Result]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="module")
def tracklog(home: Path) -> Tracklog:
    runner = CliRunner(env={"TRACKLOG_HOME": str(home / "data")})

    def run(*arguments: object, exit_code: int = 0) -> Result:
        result = runner.invoke(app, [str(one) for one in arguments])
        assert result.exit_code == exit_code, f"{arguments}: {result.output}\n{result.exception!r}"
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture(scope="module")
def imported(tracklog: Tracklog, home: Path) -> Tracklog:
    """Six recorded runs are in."""
    lines = shipped_file("airline_runs.jsonl").splitlines(keepends=True)[:RUNS]
    (home / "airline_runs.jsonl").write_bytes(b"".join(lines))
    report = json.loads(tracklog("import", home / "airline_runs.jsonl", "--json").stdout)
    assert (report["new"], report["refused"]) == (RUNS, [])
    return tracklog


def documents(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_an_import_again_writes_nothing(imported: Tracklog, home: Path) -> None:
    result = imported("import", home / "airline_runs.jsonl")

    assert f"0 runs new, 0 resumed, {RUNS} already in" in result.stdout
    assert "0 events durable" in result.stdout


def test_a_broken_line_is_named_and_the_other_runs_go_in(tracklog: Tracklog, tmp_path: Path) -> None:
    line = shipped_file("airline_runs.jsonl").splitlines(keepends=True)[RUNS]
    (tmp_path / "half.jsonl").write_bytes(line[: len(line) // 2].rstrip(b"\n") + b"\n" + line)
    log = ("--log", f"sqlite:{tmp_path / 'log.db'}")

    result = tracklog(*log, "import", tmp_path / "half.jsonl", exit_code=1)

    assert f"{tmp_path / 'half.jsonl'}:1:" in result.stderr
    assert "1 runs new" in result.stdout


def test_a_path_where_nothing_is_is_said_before_anything_is_made(tracklog: Tracklog, tmp_path: Path) -> None:
    log = ("--log", f"sqlite:{tmp_path / 'log.db'}")

    result = tracklog(*log, "import", tmp_path / "nothing.jsonl", exit_code=2)

    assert f"{tmp_path / 'nothing.jsonl'}: no such file" in result.stderr
    assert not (tmp_path / "log.db").exists()


def test_many_broken_lines_take_a_screen_and_all_are_in_json(tracklog: Tracklog, tmp_path: Path) -> None:
    (tmp_path / "broken.jsonl").write_text("no JSON\n" * 50)
    (tmp_path / "empty.jsonl").write_text("")
    log = ("--log", f"sqlite:{tmp_path / 'log.db'}")

    said = tracklog(*log, "import", tmp_path, exit_code=1).stderr.splitlines()

    assert len(said) == 20 + 1 + 1
    assert said[20] == f"and 30 more refused in {tmp_path / 'broken.jsonl'}; all of them with --json"
    assert said[21] == f"refused: {tmp_path / 'empty.jsonl'}: the file holds no run"
    assert len(json.loads(tracklog(*log, "import", tmp_path, "--json", exit_code=1).stdout)["refused"]) == 51


def test_a_list_has_filters_conditions_and_pages(imported: Tracklog) -> None:
    everything = json.loads(imported("list", "--json").stdout)
    assert len(everything["trajectories"]) == RUNS
    assert everything["next"] is None

    seen: list[str] = []
    cursor: list[str] = []
    while True:
        page = json.loads(imported("list", "--json", "--limit", 4, *cursor).stdout)
        seen += [row["trajectory_id"] for row in page["trajectories"]]
        if page["next"] is None:
            break
        cursor = ["--cursor", page["next"]]
    assert seen == [row["trajectory_id"] for row in everything["trajectories"]]

    chosen = everything["trajectories"][0]
    label, tool = f"trial={chosen['labels']['trial']}", next(iter(chosen["tools"]), None)
    found = json.loads(imported("list", "--json", "--label", label, "--where", "turn >= 0").stdout)
    assert chosen["trajectory_id"] in [row["trajectory_id"] for row in found["trajectories"]]
    if tool is not None:
        rows = json.loads(imported("list", "--json", "--tool", tool).stdout)["trajectories"]
        assert all(tool in row["tools"] for row in rows)
    assert "no trajectory matches" in imported("list", "--tenant", "nobody").stdout
    assert "no trajectory matches" in imported("list", "--until", "2001-01-01").stdout
    assert imported("list", "--where", f"turn == {chosen['turn']}", "-n", 1).stdout.count("airline-") >= 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("list", "--where", "turn >"), "turn >"),
        (("list", "--label", "order"), "order"),
        (("list", "--since", "yesterday"), "yesterday"),
        (("list", "--cursor", "x"), "x"),
        (("show", "nosuch"), "nosuch"),
        (("verify",), "what to verify"),
        (("verify", "nosuch"), "nosuch"),
        (("verify", "one", "--all"), "what to verify"),
        (("replay", "events", "--partition", 12), "partition 12"),
        (("replay", "events", "--from", "7"), "offset 7"),
        (("replay", "events", "--from", "monday", "--partition", 0), "monday"),
        (("replay", "events", "--where", "nosuch == 1"), "nosuch"),
        (("replay", "events", "--to-topic", "tracklog.events"), "tracklog.events"),
        (("replay", "events", "--fold", "--to-file", "x"), "exclude each other"),
        (("replay", "events", "--for", 1), "--follow"),
        (("replay", "events", "--follow", "--to", "end"), "--to and --follow"),
        (("replay", "events", "--follow", "--fold"), "--fold and --follow"),
        (("replay", "events", "--partition", 0, "--from", ""), "is no bound"),
        (("replay", "events", "--partition", 0, "--to", ""), "is no bound"),
        (("--set", "writer.barier=fsync", "list"), "barier"),
        (("--set", "writer", "list"), "writer"),
        (("--prefix", "Not A Prefix", "list"), "Not A Prefix"),
        (("--log", "carrier-pigeon:x", "verify", "--all"), "carrier-pigeon"),
    ],
)
def test_bad_input_is_one_clear_error_with_exit_code_2(
    imported: Tracklog, arguments: tuple[object, ...], named: str
) -> None:
    result = imported(*arguments, exit_code=2)

    assert named in result.stderr
    assert result.stdout == ""


def test_with_json_an_error_is_json_too(imported: Tracklog) -> None:
    error = json.loads(imported("show", "nosuch", "--json", exit_code=2).stderr)["error"]

    assert (error["type"], error["exit_code"], error["definite"]) == ("InputError", 2, True)
    assert "tracklog list" in error["hint"]


def test_a_topic_that_is_missing_is_named_with_the_way_out(tracklog: Tracklog, tmp_path: Path) -> None:
    result = tracklog("--log", f"sqlite:{tmp_path / 'log.db'}", "verify", "--all", exit_code=3)

    assert "tracklog.events" in result.stderr
    assert "import something first" in result.stderr


def test_a_timeline_comes_from_redis_and_from_the_log_alike(imported: Tracklog) -> None:
    name = json.loads(imported("list", "--json", "-n", 1).stdout)["trajectories"][0]["trajectory_id"]
    warm = json.loads(imported("show", name, "--json").stdout)
    cold = json.loads(imported("show", name, "--json", "--from-log").stdout)

    assert (warm.pop("source"), cold.pop("source")) == ("redis", "log")
    assert warm == cold
    assert [one["seq"] for one in warm["records"]] == list(range(len(warm["records"])))
    text = imported("show", name).stdout
    assert "turn 1" in text
    assert "TaskStarted" in text


def test_verify_is_content_with_what_was_imported_and_with_redis(imported: Tracklog) -> None:
    imported("process", "--once")
    found = json.loads(imported("verify", "--all", "--against", "redis", "--json").stdout)

    assert (found["trajectories"], found["faulty"], found["reports"]) == (RUNS, 0, [])
    assert found["records"] == found["events"]


def test_replay_counts_what_verify_counts_in_every_form(imported: Tracklog, tmp_path: Path) -> None:
    records = json.loads(imported("verify", "--all", "--json").stdout)["records"]

    assert len(documents(imported("replay", "events", "--json"))) == records
    assert len(imported("replay", "events").stdout.splitlines()) == records
    raw = imported("replay", "events", "--format", "raw").stdout_bytes
    count = 0
    while raw:
        length = int.from_bytes(raw[:4], "big")
        raw, count = raw[4 + length :], count + 1
    assert count == records
    imported("replay", "events", "--format", "avro", "--to-file", tmp_path / "all.avro")
    with (tmp_path / "all.avro").open("rb") as file:
        assert sum(1 for _ in read_records(file)) == records


def test_replay_of_offset_zero_of_partition_zero_and_of_nothing(imported: Tracklog) -> None:
    (first,) = documents(imported("replay", "events", "--partition", 0, "--from", 0, "--to", 1, "--json"))
    assert (first["partition"], first["offset"]) == (0, 0)

    nothing = imported("replay", "events", "--partition", 0, "--from", 0, "--to", 0)
    assert nothing.stdout == ""
    assert "the range is empty (0:0-0)" in nothing.stderr


def test_replay_says_what_of_a_range_is_not_there(imported: Tracklog) -> None:
    result = imported("replay", "events", "--partition", 0, "--from", 0, "--to", 999_999)

    assert "clipped: partition 0: asked for to 999999" in result.stderr


@pytest.mark.parametrize("form", [(), ("--fold",), ("--json",)])
def test_replay_says_that_nothing_was_found(imported: Tracklog, form: tuple[str, ...]) -> None:
    name = json.loads(imported("list", "--json", "-n", 1).stdout)["trajectories"][0]["trajectory_id"]
    place = next(one for one in documents(imported("replay", "events", "--trajectory", name, "--json")))["partition"]
    nobody = next(f"nosuch{n}" for n in range(1000) if partition_of(f"nosuch{n}".encode(), 12) == place)

    assert f"no event of {nobody}" in imported("replay", "events", "--trajectory", nobody, *form).stderr
    assert "meets --where" in imported("replay", "events", "--where", "type == 'Nope'", *form).stderr


def test_replay_to_a_file_is_whole_and_overwrites_only_when_told(imported: Tracklog, tmp_path: Path) -> None:
    target = tmp_path / "some.jsonl"
    imported("replay", "events", "--max", 3, "--to-file", target)
    assert len(target.read_text().splitlines()) == 3

    assert "exists" in imported("replay", "events", "--to-file", target, exit_code=2).stderr
    imported("replay", "events", "--max", 0, "--to-file", target, "--force")
    assert target.read_text() == ""
    assert list(tmp_path.iterdir()) == [target]
    assert (
        "cannot be written" in imported("replay", "events", "--to-file", tmp_path / "no" / "where", exit_code=2).stderr
    )


def test_a_fold_shows_the_states_at_the_end_of_the_range(imported: Tracklog) -> None:
    name = json.loads(imported("list", "--json", "-n", 1).stdout)["trajectories"][0]["trajectory_id"]
    (state,) = documents(imported("replay", "events", "--trajectory", name, "--fold", "--json"))
    shown = json.loads(imported("show", name, "--json").stdout)["state"]

    assert state == shown
    assert name in imported("replay", "events", "--trajectory", name, "--fold").stdout


def test_following_leaves_after_its_time_or_its_count(imported: Tracklog) -> None:
    assert len(documents(imported("replay", "events", "--follow", "--max", 2, "--json"))) == 2
    assert imported("replay", "events", "--from", "end", "--follow", "--for", 0, "--json").stdout == ""


@pytest.fixture
def poisoned(tmp_path: Path) -> str:
    """A log with a sound trajectory, one with a flipped byte, and foreign bytes between them."""
    sound, bad = run_of("sound"), run_of("bad")
    for chain in (sound, bad):
        chain.add(OwnershipReleased(owner="owner", nonce=bytes(16)))
    url = f"sqlite:{tmp_path / 'poisoned.db'}"
    log = open_log(url)
    CliRunner().invoke(app, ["--log", url, "topics", "apply"])
    records = [*sound.records, Made(b"sound", b"hello", (), b""), *flipped(bad.records, 6)]
    append_all(log, Topics().events, records)
    log.close()
    return url


def test_verify_names_the_event_and_its_place_and_ends_with_1(tracklog: Tracklog, poisoned: str) -> None:
    found = json.loads(tracklog("--log", poisoned, "verify", "--all", "--json", exit_code=1).stdout)

    ((report),) = found["reports"]
    assert (report["trajectory_id"], report["faults"][0]["seq"], report["faults"][0]["kind"]) == ("bad", 6, "tampered")
    assert (found["trajectories"], found["faulty"], found["foreign"]) == (2, 1, 1)

    text = tracklog("--log", poisoned, "verify", "--all", exit_code=1)
    assert "1 of them faulty" in text.stdout
    place = f"{report['faults'][0]['partition']}:{report['faults'][0]['offset']}"
    assert place in text.stdout
    tracklog("--log", poisoned, "verify", "sound")
    tracklog("--log", poisoned, "verify", "bad", exit_code=1)


def test_foreign_bytes_are_shown_by_replay_and_kept_by_quarantine(
    tracklog: Tracklog, poisoned: str, tmp_path: Path
) -> None:
    data = ("--log", poisoned, "--set", f"home={tmp_path / 'own'}")
    shown = [one for one in documents(tracklog(*data, "replay", "events", "--json")) if one["type"] is None]
    assert [bytes.fromhex(one["value"]) for one in shown] == [b"hello"]
    assert "no event" in tracklog(*data, "replay", "events").stdout

    tracklog(*data, "process", "--once")
    (kept,) = json.loads(tracklog(*data, "quarantine", "list", "--json").stdout)["records"]
    assert (kept["source_topic"], kept["bytes"]) == ("tracklog.events", 5)
    assert "68656c6c" in kept["reason"]
    rows = json.loads(tracklog(*data, "list", "--json").stdout)["trajectories"]
    assert {row["trajectory_id"]: row["status"] for row in rows} == {"sound": "completed", "bad": "faulty"}


def test_topics_are_made_once_and_compared(tracklog: Tracklog, tmp_path: Path) -> None:
    log = ("--log", f"sqlite:{tmp_path / 'log.db'}", "--prefix", "other")
    missing = json.loads(tracklog(*log, "topics", "verify", "--json", exit_code=1).stdout)
    assert {one["found"] for one in missing["findings"]} == {"missing"}

    assert tracklog(*log, "topics", "apply").stdout.count("created other.") == 5
    assert "as they should be" in tracklog(*log, "topics", "verify").stdout
    assert json.loads(tracklog(*log, "topics", "apply", "--json").stdout) == {"created": [], "findings": []}

    wrong = tracklog(*log, "--set", "topics.partitions=3", "topics", "verify", exit_code=1)
    assert "partitions" in wrong.stdout
    assert " 3 " in wrong.stdout
    assert " 12 " in wrong.stdout


def test_doctor_finds_all_well_and_what_is_not(imported: Tracklog, tmp_path: Path) -> None:
    well = json.loads(imported("doctor", "--json").stdout)
    assert well["ok"]
    found = {one["name"]: one["ok"] for one in well["checks"]}
    looked_at = ("versions", "log", "topics", "clock", "redis", "redis clock", "blobs")
    assert {name: ok for name, ok in found.items() if ok is not None} == dict.fromkeys(looked_at, True)
    assert set(found) - set(looked_at) == {"home", "acls", "registry", "cold"}

    (tmp_path / "file").write_text("")
    options = ("--set", "log.connect_timeout_s=1", "--log", "kafka://127.0.0.1:1", "--blobs", tmp_path / "file")
    ill = json.loads(imported(*options, "doctor", "--json", exit_code=1).stdout)
    by_name = {one["name"]: one for one in ill["checks"]}
    assert (by_name["log"]["ok"], by_name["blobs"]["ok"]) == (False, False)
    assert "127.0.0.1:1" in by_name["log"]["found"]


def test_settings_come_before_or_after_the_command_and_those_after_count(tracklog: Tracklog, tmp_path: Path) -> None:
    first, second = f"sqlite:{tmp_path / '1.db'}", f"sqlite:{tmp_path / '2.db'}"
    tracklog("--log", first, "topics", "apply", "--log", second)

    assert not (tmp_path / "1.db").exists()
    assert (tmp_path / "2.db").exists()


def test_the_stack_says_that_nothing_runs(tracklog: Tracklog, tmp_path: Path) -> None:
    status = tracklog("--set", f"home={tmp_path}", "stack", "status", "--json", exit_code=1)

    found = json.loads(status.stdout)
    assert (found["log"], found["redis"], found["kafka_libs"]) == (None, None, None)
    assert "nothing was running" in tracklog("--set", f"home={tmp_path}", "stack", "down").stdout


@pytest.mark.parametrize("command", ["import", "list", "show", "verify", "process", "demo", "doctor"])
def test_every_command_has_help_with_an_example(tracklog: Tracklog, command: str) -> None:
    assert "Example" in tracklog(command, "--help").output
