"""What a record cannot hold is told with the name of the field, and without what was given."""

from __future__ import annotations

import pytest

from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.events import CancelRequested
from tracklog.schemas.given import checked


def test_the_field_is_named_and_what_was_given_is_not_repeated() -> None:
    refused = pytest.raises(InvalidEvent, match=r"the cancel cannot be recorded: by: String should")
    with refused as told, checked("the cancel"):
        CancelRequested(by="", reason="s3cret")
    assert "s3cret" not in str(told.value)


def test_what_fits_passes() -> None:
    with checked("the cancel"):
        said = CancelRequested(by="ada")
    assert said.by == "ada"
