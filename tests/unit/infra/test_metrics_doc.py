"""The page of metrics says what there is, because it is written from it."""

from __future__ import annotations

from scripts.metrics_doc import PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"
