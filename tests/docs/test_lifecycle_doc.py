"""The lifecycle page shows the tables, because it is drawn from them."""

from __future__ import annotations

import re

import pytest

from scripts.lifecycle_doc import PAGE, TABLES, page
from tracklog.schemas.events import EVENT_TYPES
from tracklog.schemas.lifecycle import APPROVAL, CALL, TRAJECTORY

ARROW = re.compile(r"^    (\S+) --> (\S+)(?: : ([^:;]+))?$")


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_table_has_its_diagram() -> None:
    assert [table for _, table in TABLES.values()] == [TRAJECTORY, CALL, APPROVAL]
    assert page().count("```mermaid\nstateDiagram-v2\n") == 3


def test_every_move_between_two_states_is_an_arrow() -> None:
    drawn = {
        (match[1], match[2], step)
        for line in page().splitlines()
        if (match := ARROW.match(line)) is not None and match[3] is not None
        for step in match[3].split(", ")
    }
    moves = {
        (before.value.replace(" ", "_"), after.value.replace(" ", "_"), re.sub(r":(\w+)", r" (\1)", step))
        for _, table in TABLES.values()
        for before, steps in table.items()
        for step, after in steps.items()
        if after is not before
    }

    assert drawn == moves


@pytest.mark.parametrize("line", [line for line in page().splitlines() if "-->" in line])
def test_every_arrow_is_one_that_mermaid_reads(line: str) -> None:
    """A colon or a semicolon inside of a label would end it."""
    assert ARROW.match(line)


def test_every_event_has_a_place_in_the_lifecycle_of_a_trajectory() -> None:
    steps = {step.partition(":")[0] for moves in TRAJECTORY.values() for step in moves}

    assert steps == set(EVENT_TYPES)
