"""Every test that the page of guarantees names is there, and no line leaves out what shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:unit|property|integration|faults)/[\w/*.]+)`", TEXT)))
LINES = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| guarantee"))]


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    assert list((ROOT / "tests").glob(name))


@pytest.mark.parametrize("line", LINES)
def test_a_line_has_its_guarantee_a_test_and_a_place_for_its_limit(line: str) -> None:
    guarantee, shown, _ = (cell.strip() for cell in line.strip("|").split("|"))
    assert guarantee
    assert re.search(r"`(?:unit|property|integration|faults)/test_|`unit/\w+/test_", shown)


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 40
