"""Every test that the page of guarantees names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = sorted(
    set(re.findall(r"`((?:unit|property|integration|faults)/[\w/*.]+)`", (ROOT / "docs/guarantees.md").read_text()))
)


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name: str) -> None:
    assert list((ROOT / "tests").glob(name))


def test_the_page_names_tests() -> None:
    assert len(NAMED) > 15
