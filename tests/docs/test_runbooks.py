"""The commands that runbooks give people in a hurry: each is one that there is, and is taken as it is written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.exceptions import TyperException

from tracklog.consumers.cli.app import app

PAGES = sorted((Path(__file__).parents[2] / "docs" / "runbooks").glob("*.md"))
FILLED = {"TIME": "2026-01-31T00:00:00Z", "N": "1"}
"""What stands for a value that not every word is."""


def commands(page: Path) -> list[str]:
    """In backticks, and in blocks of commands."""
    text = page.read_text(encoding="utf-8")
    blocks = [line for block in re.findall(r"(?s)```\w*\n(.*?)```", text) for line in block.splitlines()]
    inline = re.findall(r"`(tracklog [^`]*)`", re.sub(r"(?s)```.*?```", "", text).replace("\n", " "))
    return [one for one in (*blocks, *inline) if one.startswith("tracklog ")]


CASES = [(page.name, command) for page in PAGES for command in commands(page)]


def taken(command: str) -> str:
    """Reads the command as the program would, and does not run it: its name. Raises TyperException, SystemExit.

    Its name alone may stand for it, without what else it needs.
    """
    words = [FILLED.get(word, word) for word in shlex.split(command)[1:]]
    context: Any = None
    one: Any = typer.main.get_command(app)
    while hasattr(one, "resolve_command"):
        context = one.make_context(one.name, words, parent=context)
        rest = [*context._protected_args, *context.args]
        _, one, words = one.resolve_command(context, rest)
    if words:
        one.make_context(one.name, words, parent=context)
    return str(one.name)


@pytest.mark.parametrize(("page", "command"), CASES)
def test_a_command_of_a_runbook_is_one(page: str, command: str) -> None:
    assert taken(command) in command.split()


@pytest.mark.parametrize("wrong", ["tracklog tool list", "tracklog tools", "tracklog show --verbosely ID"])
def test_what_is_no_command_is_told(wrong: str) -> None:
    with pytest.raises((TyperException, SystemExit)):
        taken(wrong)


def test_every_runbook_of_an_alert_gives_commands() -> None:
    assert len(CASES) > 40
    assert {name for name, _ in CASES} >= {"in-doubt.md", "approvals-overdue.md", "dispatcher-paused.md", "parked.md"}
