"""The models of docs/model: their cases, a few of which are checked here. `make model` checks all."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from scripts.model import MODELS, NEEDS, cases, check, wrong

QUICK: Final = (
    "opaque call in the process",
    "sent before the intent was read back",
    "no read-back of the ledger",
    "a chain comes to its end",
    "only the last is sent again",
    "the outcome is taken",
    "the inbox is taken while undecided",
)
RULES: Final = frozenset(range(1, 12))


def test_every_rule_has_a_case_that_holds_or_breaks() -> None:
    named = {int(one) for case in cases() for one in re.findall(r"\b\d+\b", re.sub(r"\[.*?\]", "", case.rule))}
    assert named == RULES


def test_every_rule_that_can_be_taken_out_is_named_in_its_model_and_has_a_case() -> None:
    for model in sorted(MODELS.glob("*.pml")):
        text = model.read_text()
        named = set(re.findall(r"\b[A-Z]{3,}\b", text[: text.index("*/")]))
        used = set(re.findall(r"(?:ifdef|ifndef|defined\()\s*([A-Z]+)", text))
        tried = {re.sub(r"-D|=.*", "", one) for case in cases() if case.model == model.stem for one in case.options}
        assert used - {"LIVE"} <= named | {"ND", "NW"}, f"{model.name} does not say what these are"
        assert tried <= used | {"CLASS"}, f"{model.name} does not know these"


@pytest.mark.parametrize("name", QUICK)
def test_a_model_holds_and_breaks_without_its_rule(name: str) -> None:
    missing = [one for one in NEEDS if shutil.which(one) is None]
    if missing:
        pytest.skip(f"not on the PATH: {', '.join(missing)}")
    case = next(one for one in cases() if one.name == name)
    assert not wrong(case, check(case, timeout_s=120.0))


def test_the_page_names_every_model() -> None:
    page = (Path(MODELS) / "README.md").read_text()
    assert all(f"{one.stem}.pml" in page for one in MODELS.glob("*.pml"))
