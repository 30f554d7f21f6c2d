"""Writes the table of values in helm/tracklog/README.md from values.yaml; `--check` only says whether it is current."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from scripts.page import write_or_check

CHART: Final = Path(__file__).resolve().parent.parent / "helm" / "tracklog"
PAGE: Final = CHART / "README.md"
BEGIN: Final = "<!-- values: written by scripts/chart_doc.py -->\n"
END: Final = "<!-- end of values -->\n"

_LINE: Final = re.compile(r"(?P<indent> *)(?P<key>[\w.]+):(?P<rest>.*)\Z")


class Value(NamedTuple):
    """One key of values.yaml: its dotted name, its default, and the comment above it."""

    name: str
    default: object
    words: str


def values() -> Iterator[Value]:
    """Every key that has a comment, in the order of the file. ValueError for one that has neither comment nor keys."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    tree = yaml.safe_load(text)
    above: list[tuple[int, str]] = []
    words: list[str] = []
    told: list[str] = ["components"]  # below it, keys repeat those of `defaults`
    for line in text.splitlines():
        comment = line.strip()
        if comment.startswith("# -- "):
            words.append(comment.removeprefix("# -- "))
            continue
        found = _LINE.match(line)
        if found is None or comment.startswith("#"):
            continue
        indent = len(found["indent"])
        above = [*(one for one in above if one[0] < indent), (indent, found["key"])]
        names = [key for _, key in above]
        node, name = _at(tree, names), ".".join(names)
        if words:
            told.append(name)
            yield Value(name, node, " ".join(words))
        elif not isinstance(node, dict) and not any(name.startswith(f"{one}.") for one in told):
            raise ValueError(f"values.yaml: {name} has no comment")
        words = []


def _at(tree: object, names: list[str]) -> object:
    for name in names:
        assert isinstance(tree, dict)
        tree = tree[name]
    return tree


def table() -> str:
    """The values as a Markdown table."""
    rows = [f"| `{one.name}` | `{json.dumps(one.default)}` | {_cell(one.words)} |" for one in values()]
    return "\n".join(["| value | default | |", "| --- | --- | --- |", *rows]) + "\n"


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


def page() -> str:
    """The README with its table as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    raise SystemExit(write_or_check(PAGE, page()))
