"""The settings page says what the code does, because it is written from it."""

from __future__ import annotations

import ast

from scripts.settings_doc import PAGE, classes, page
from tracklog.infra import settings_sections
from tracklog.infra.settings import known_names
from tracklog.infra.settings_base import Section


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_setting_has_a_heading() -> None:
    headings = {line[5:-1] for line in page().splitlines() if line.startswith("### `")}
    sections = {name.partition(".")[0] for name in known_names() if "." in name}

    assert headings == set(known_names()) - sections


def test_every_field_is_explained_below_itself() -> None:
    bare = []
    for node in classes():
        for field, below in zip(node.body, [*node.body[1:], None], strict=True):
            explained = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and not explained and not _is_section(field):
                bare.append(f"{node.name}.{ast.unparse(field.target)}")

    assert bare == []


def _is_section(field: ast.AnnAssign) -> bool:
    kind = getattr(settings_sections, ast.unparse(field.annotation), None)
    return isinstance(kind, type) and issubclass(kind, Section)
