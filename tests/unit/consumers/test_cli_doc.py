"""The pages about the command line say what it does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.cli_doc import PAGE, names, page
from tracklog.consumers.cli.app import COMMANDS
from tracklog.schemas import errors

EXIT_CODES = PAGE.parent / "exit-codes.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_command_has_a_heading_and_an_example() -> None:
    sections = {block.partition("\n")[0]: block for block in re.split(r"^#+ ", page(), flags=re.MULTILINE)}

    for name in names():
        assert f"\ntracklog {name}" in sections[name], name
        assert "\nExample" in sections[name], name


def test_a_command_says_of_itself_what_the_list_of_commands_says() -> None:
    assert all(line.endswith(".") and len(line) <= 80 for _, line in COMMANDS.values())


@pytest.mark.parametrize(
    "error",
    [
        error
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.TracklogError) and not error.__subclasses__()
    ],
    ids=lambda error: error.__name__,
)
def test_every_error_is_on_the_page_of_exit_codes_with_its_code(error: type[errors.TracklogError]) -> None:
    text = Path(EXIT_CODES).read_text(encoding="utf-8")
    row = next((line for line in text.splitlines() if line.startswith(f"| {error.exit_code} |")), "")
    tail = text.rpartition("Code 3 is given")[2] if error.exit_code == 3 else ""
    assert f"`{error.__name__}`" in row + tail or "Registry" in error.__name__ or "Schema" in error.__name__
