"""What an event may say about its lane."""

from __future__ import annotations

import pytest

from tracklog.schemas.lifecycle import EXT_LANE, lane_of


@pytest.mark.parametrize(("text", "lane"), [("0", 0), ("12", 12), ("", 0), ("-1", 0), ("x", 0), ("9" * 5000, 0)])
def test_a_lane_is_a_number_whatever_an_event_says(text: str, lane: int) -> None:
    assert lane_of({EXT_LANE: text}) == lane
