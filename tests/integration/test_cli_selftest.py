"""`tracklog selftest`: what it writes comes back, from the log and in the view, or it says what is not there."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from tracklog.consumers.cli.app import app
from tracklog.infra.log.open import open_log
from tracklog.infra.settings import load_settings
from tracklog.infra.topic_admin import apply

runner = CliRunner()


def test_on_a_bare_machine_it_writes_reads_back_and_sees_the_view(tmp_path: Path) -> None:
    home = ("--set", f"home={tmp_path}")

    done = runner.invoke(app, ["selftest", "--json", *home])

    told = json.loads(done.stdout)
    assert done.exit_code == 0, done.output
    assert told["events"] >= 3
    assert told["view_s"] is not None
    shown = runner.invoke(app, ["verify", told["trajectory_id"], "--against", "redis", *home])
    assert shown.exit_code == 0, shown.output


def test_two_leave_two_trajectories(tmp_path: Path) -> None:
    ids = {
        json.loads(runner.invoke(app, ["selftest", "--no-views", "--json", "--set", f"home={tmp_path}"]).stdout)[
            "trajectory_id"
        ]
        for _ in range(2)
    }

    assert len(ids) == 2


def test_without_anybody_who_folds_it_fails_and_says_who_is_missing(
    kafka_bootstrap: str, redis_db: str, fresh_prefix: str, tmp_path: Path
) -> None:
    place = {"log": f"kafka://{kafka_bootstrap}", "prefix": fresh_prefix}
    one_copy = {"topics.replication_factor": 1, "topics.min_insync_replicas": 1}
    settings = load_settings(flags={**place, **one_copy}, environ={}, cwd=tmp_path)
    log = open_log(settings.log.url)
    apply(log, settings.topic_specs())
    log.close()
    flags = [f"--log={place['log']}", f"--prefix={fresh_prefix}", f"--redis={redis_db}", f"--blobs={tmp_path}"]
    own = [word for name, value in one_copy.items() for word in ("--set", f"{name}={value}")]

    done = runner.invoke(app, ["selftest", "--timeout", "0.5", *flags, *own])

    assert done.exit_code == 3, done.output
    assert "events durable (fsync) and read back" in done.stderr
    assert "tracklog process" in done.stderr
