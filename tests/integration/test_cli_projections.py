"""A processor of one's own through the commands: written, loaded, failing, corrected, compared, built anew."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tracklog.consumers.cli.app import app
from tracklog.infra.redis_client import connect
from tracklog.producers.data import shipped_file

RUNS = 4
BOUND_S = 300
Tracklog = Callable[..., Result]

FAILURES = """
    from tracklog.processors.processor import Processor, Seen, Shape
    from tracklog.processors.writes import Rank

    class Failures(Processor[int]):
        name = "failures"
        version = 1
        reads = frozenset({"ToolResult"})
        layout = {"by-trajectory": Shape.SORTED_SET}

        def start(self, key: str) -> int:
            return 0

        def apply(self, state: int, seen: Seen) -> int:
            BROKEN
            return state + (seen.event.body.status.value != "ok")

        def writes(self, key, before, after):
            yield Rank(["by-trajectory"], key, after)
"""


@pytest.fixture
def tracklog(tmp_path: Path, redis_db: str, fresh_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Tracklog:
    """On four imported runs."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner(env={"TRACKLOG_HOME": str(tmp_path / "data")})

    def run(*arguments: object, exit_code: int = 0) -> Result:
        given = ("--redis", redis_db, "--prefix", fresh_prefix, *map(str, arguments))
        result = runner.invoke(app, given)
        assert result.exit_code == exit_code, f"{arguments}: {result.output}\n{result.exception!r}"
        assert "Traceback" not in result.output
        return result

    lines = shipped_file("airline_runs.jsonl").splitlines(keepends=True)[:RUNS]
    (tmp_path / "runs.jsonl").write_bytes(b"".join(lines))
    run("import", "runs.jsonl")
    return run


def write(path: Path, broken: str = "") -> None:
    path.mkdir(exist_ok=True)
    (path / "failures.py").write_text(textwrap.dedent(FAILURES).replace("BROKEN", broken or "pass"))


def listed(tracklog: Tracklog, exit_code: int = 0) -> dict[str, dict[str, object]]:
    found = json.loads(tracklog("projections", "list", "--json", exit_code=exit_code).stdout)["projections"]
    return {one["name"]: one for one in found}


def test_one_of_ones_own_fails_is_shown_is_corrected_and_equals_the_log(tracklog: Tracklog, tmp_path: Path) -> None:
    folder = tmp_path / "views"
    write(folder, broken="if seen.record.offset % 3 == 0: raise ValueError('of three')")
    tracklog("process", "--once", "--folder", folder)

    stopped = listed(tracklog, exit_code=1)["failures"]
    assert stopped["behind"] == 0
    assert stopped["parked"]
    assert "ValueError: of three" in tracklog("projections", "list", exit_code=1).stdout
    assert listed(tracklog, exit_code=1)["spend"]["parked"] == []
    verify = ("projections", "verify", "failures", "--folder", folder)
    verified = json.loads(tracklog(*verify, "--json", exit_code=1).stdout)
    assert (verified["difference"], verified["parked"]) == (None, stopped["parked"])
    assert "tracklog projections retry failures" in tracklog(*verify, exit_code=1).stdout

    write(folder)
    asked = json.loads(tracklog("projections", "retry", "failures", "--json").stdout)["asked"]
    tracklog("process", "failures", "--once", "--folder", folder)

    assert len(asked) == len(stopped["parked"])  # type: ignore[arg-type]
    assert listed(tracklog)["failures"]["parked"] == []
    assert "as the log says" in tracklog("projections", "verify", "failures", "--folder", folder).stdout


def test_built_anew_it_is_compared_and_readers_are_turned_over(
    tracklog: Tracklog, tmp_path: Path, redis_db: str, fresh_prefix: str
) -> None:
    tracklog("process", "--once")
    built = json.loads(tracklog("projections", "rebuild", "spend", "--json").stdout)
    assert (built["build"], built["equal"]) == (1, True)

    client = connect(redis_db, timeout_s=5)
    keys = list(client.scan_iter(match=f"{fresh_prefix}:{{*}}:spend:v1*"))
    assert all(b":v1.1:" in key for key in keys)
    client.delete(next(key for key in keys if b":meter:" in key))
    client.close()
    found = json.loads(tracklog("projections", "verify", "spend", "--json", exit_code=1).stdout)["difference"]
    assert found["key"].startswith("meter:")
    assert found["stored"] == "None"

    again = json.loads(tracklog("projections", "rebuild", "spend", "--json").stdout)
    assert (again["build"], again["equal"]) == (2, False)
    tracklog("projections", "verify", "spend")
    tracklog("process", "spend", "--once")
    assert listed(tracklog)["spend"]["build"] == 2


def test_the_trajectories_are_compared_and_built_anew_as_the_others(
    tracklog: Tracklog, redis_db: str, fresh_prefix: str
) -> None:
    tracklog("process", "--once")
    assert "as the log says" in tracklog("projections", "verify", "trajectories").stdout
    shown = json.loads(tracklog("list", "--json").stdout)["trajectories"]

    client = connect(redis_db, timeout_s=5)
    key = next(client.scan_iter(match=f"{fresh_prefix}:{{*}}:trajectories:v*:by:time"))
    client.zadd(key, {"nobody": 5})
    found = json.loads(tracklog("projections", "verify", "trajectories", "--json", exit_code=1).stdout)["difference"]
    assert (found["key"], "nobody" in found["stored"], "nobody" in found["folded"]) == ("by:time", True, False)

    built = json.loads(tracklog("projections", "rebuild", "trajectories", "--json").stdout)
    assert (built["build"], built["equal"]) == (1, False)
    assert all(b".1:" in one for one in client.scan_iter(match=f"{fresh_prefix}:{{*}}:trajectories:*"))
    client.close()
    tracklog("projections", "verify", "trajectories")
    assert json.loads(tracklog("list", "--json").stdout)["trajectories"] == shown
    assert json.loads(tracklog("show", shown[0]["trajectory_id"], "--json").stdout)["source"] == "redis"
    tracklog("process", "trajectories", "--once")
    assert json.loads(tracklog("projections", "rebuild", "trajectories", "--json").stdout)["equal"] is True
    assert "the router's" in tracklog("projections", "verify", "agenda", exit_code=2).stderr


def test_what_a_processor_keeps_is_shown_by_key(tracklog: Tracklog) -> None:
    tracklog("process", "--once")
    keys = tracklog("projections", "read", "spend").stdout.split()
    key = next(one for one in keys if one.startswith("meter:"))
    shown = json.loads(tracklog("projections", "read", "spend", key, "--json").stdout)
    calls = sum(number for name, number in shown["value"].items() if name.endswith("|calls"))
    assert calls > RUNS
    assert (
        f"|calls  {shown['value'][next(name for name in shown['value'] if name.endswith('|calls'))]}"
        in tracklog("projections", "read", "spend", key).stdout
    )
    assert "has no key 'nothing'" in tracklog("projections", "read", "spend", "nothing", exit_code=2).stderr


def test_how_far_behind_each_is_says_offsets_and_time(tracklog: Tracklog, tmp_path: Path) -> None:
    tracklog("process", "spend", "--once")
    found = json.loads(tracklog("projections", "lag", "--max-s", 0, "--json").stdout)
    assert {one["name"] for one in found["lag"]} == {"spend"}
    assert ({one["records"] for one in found["lag"]}, found["late"]) == ({0}, 0)
    assert {one["age_s"] for one in found["lag"]} == {0.0}

    lines = shipped_file("airline_runs.jsonl").splitlines(keepends=True)[RUNS : RUNS + 1]
    (tmp_path / "more.jsonl").write_bytes(b"".join(lines))
    tracklog("import", "more.jsonl")

    (late,) = [one for one in json.loads(tracklog("projections", "lag", "--json").stdout)["lag"] if one["records"]]
    assert late["records"] > 10
    assert 0 < late["age_s"] < BOUND_S
    assert "behind, more than 0 s" in tracklog("projections", "lag", "spend", "--max-s", 0, exit_code=1).stdout
    tracklog("projections", "lag", "--max-s", BOUND_S)
    assert "no projection 'pace'" in tracklog("projections", "lag", "pace", exit_code=2).stderr


def test_readers_are_turned_over_to_a_version_that_another_process_has_folded(
    tracklog: Tracklog, tmp_path: Path
) -> None:
    folder = tmp_path / "views"
    write(folder)
    tracklog("process", "failures", "--once", "--folder", folder)
    switch = ("projections", "switch", "failures", "--version", 2)
    assert "nobody has folded version 2" in tracklog(*switch, exit_code=2).stderr

    (folder / "failures.py").write_text((folder / "failures.py").read_text().replace("version = 1", "version = 2"))
    tracklog("process", "failures", "--once", "--folder", folder)
    assert listed(tracklog)["failures"]["version"] == 1
    (tmp_path / "more.jsonl").write_bytes(shipped_file("airline_runs.jsonl").splitlines(keepends=True)[RUNS])
    tracklog("import", "more.jsonl")
    assert "records behind the log" in tracklog(*switch, "--behind-max", 0, exit_code=2).stderr
    tracklog("process", "failures", "--once", "--folder", folder)

    done = json.loads(tracklog(*switch, "--behind-max", 0, "--json").stdout)

    assert (done["before"], done["now"], done["behind"]) == (1, 2, 0)
    assert (listed(tracklog)["failures"]["version"], listed(tracklog)["failures"]["behind"]) == (2, 0)
    assert "version 1, before that 2" in tracklog(*switch[:-1], 1).stdout
    tracklog(*switch)
    tracklog("projections", "verify", "failures", "--folder", folder)


def test_a_dropped_one_is_gone_until_it_is_folded_again(tracklog: Tracklog) -> None:
    tracklog("process", "--once")
    assert "--yes" in tracklog("projections", "drop", "spend", exit_code=2).stderr
    assert json.loads(tracklog("projections", "drop", "spend", "--yes", "--json").stdout)["keys"] > 1
    assert "spend" not in listed(tracklog)
    tracklog("process", "spend", "--once")
    tracklog("projections", "verify", "spend")


WRONG = {
    "reads = frozenset({'ToolResults'})": "did you mean 'ToolResult'?",
    "name = 'Failures!'": "small letters",
    "version = 0": "a whole number from 1",
    "name = 'trajectories'": "Tracklog's own",
    "layout = {'a': 1}": "in its layout",
    "async def apply(self, state, seen): return state": "is async",
    "def apply(self, state, seen, clock): return state": "cannot be called with (state, seen)",
    "def __init__(self, url): self.url = url": "cannot be made without arguments",
}


@pytest.mark.parametrize(("line", "said"), WRONG.items(), ids=range(len(WRONG)))
def test_what_is_wrong_with_a_processor_is_said_before_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    write(tmp_path)
    with (tmp_path / "failures.py").open("a") as file:
        file.write(f"\n    {line}\n")
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(app, ["process", "--folder", str(tmp_path), "--once"])

    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert "failures.py:Failures" in result.stderr


def test_names_that_are_not_there_are_said(tracklog: Tracklog, tmp_path: Path) -> None:
    assert "'spent'" in tracklog("process", "spent", "--once", exit_code=2).stderr
    assert "no module 'nowhere'" in tracklog("process", "--load", "nowhere:One", exit_code=2).stderr
    assert "no projection 'spend'" in tracklog("projections", "verify", "spend", exit_code=2).stderr
    assert "no folder" in tracklog("process", "--folder", tmp_path / "none", exit_code=2).stderr
