"""A call that cannot be read is told as every other error is: one line, a way out, as JSON where that was asked for."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tracklog.consumers.cli.app import app


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("lst", "No such command 'lst'", "did you mean 'list'? see: tracklog --help"),
        ("approvals lst", "No such command 'lst'", "did you mean 'list'? see: tracklog approvals --help"),
        ("list --limt 3", "No such option: --limt", "did you mean --limit? see: tracklog list --help"),
        ("list --nothing-like-it", "No such option: --nothing-like-it", "see: tracklog list --help"),
        ("list --limit x", "Invalid value for '--limit'", "see: tracklog list --help"),
        ("show", "Missing argument 'ID'", "see: tracklog show --help"),
        ("tools resume pay", "Missing option '--as'", "see: tracklog tools resume --help"),
        ("--oidc.isuer x list", "No such option: --oidc.isuer", "the setting --set oidc.issuer=VALUE?"),
        ("serve --api.port 80", "No such option: --api.port", "the setting --set api.port=VALUE?"),
        ("list --set oidc.isuer=x", "--set oidc.isuer: unknown setting oidc.isuer", "did you mean oidc.issuer?"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_way_out(line: str, message: str, hint: str) -> None:
    told = CliRunner().invoke(app, line.split())
    as_json = CliRunner().invoke(app, [*line.split(), "--json"])
    error = json.loads(as_json.stderr)["error"]

    assert (told.exit_code, as_json.exit_code, error["exit_code"], error["type"][-5:]) == (2, 2, 2, "Error")
    assert told.stderr.startswith(f"error: {message}")
    assert message in error["message"]
    assert hint in error["hint"]
    assert hint in told.stderr
    assert as_json.stdout == ""


def test_a_group_without_a_command_shows_its_help_and_nothing_else() -> None:
    for line in ([], ["approvals"]):
        shown = CliRunner().invoke(app, line)
        assert shown.exit_code == 2
        assert "COMMAND [ARGS]..." in " ".join(shown.output.split())
        assert "error:" not in shown.output
