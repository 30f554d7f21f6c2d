"""The page of records names every type and every field, because it is written from them."""

from __future__ import annotations

import re

from scripts.events_doc import PAGE, SHARED, meaning, page
from scripts.events_words import FIELDS, TYPES
from tracklog.schemas.catalog import BODIES, ENVELOPES
from tracklog.schemas.values import Value

MODELS: list[type[Value]] = [
    *ENVELOPES.values(),
    *(model for bodies in BODIES.values() for model in bodies.values()),
    *SHARED,
]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_type_has_a_heading_and_is_explained() -> None:
    headings = re.findall(r"^### `(\w+)`$", page(), re.MULTILINE)

    assert headings == list(dict.fromkeys(headings)), "a type is there once"
    assert set(headings) == {model.__name__ for model in MODELS} == set(TYPES)


def test_every_field_has_a_row_and_is_explained() -> None:
    for model in MODELS:
        section = page().partition(f"### `{model.__name__}`\n")[2].partition("\n### ")[0]
        assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(model.model_fields)
        assert all(meaning(model.__name__, field) for field in model.model_fields)


def test_no_meaning_is_left_over() -> None:
    used = {name for model in MODELS for field in model.model_fields for name in (field, f"{model.__name__}.{field}")}

    assert set(FIELDS) - used == set()


def test_every_link_leads_to_a_heading() -> None:
    headings = {heading.lower() for heading in re.findall(r"^### `(\w+)`$", page(), re.MULTILINE)}

    assert set(re.findall(r"\(#(\w+)\)", page())) <= headings
