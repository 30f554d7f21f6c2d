"""Weakened rules, planted one at a time: each has to be found by some seed of the first thousand.

The brackets name the rule of DESIGN §8 or the model's counterexample that a mutant breaks.
"""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants_dispatch import DISPATCH, Mutant
from tests.simulation.mutants_owner import OWNER

__all__ = ["KILLERS", "MUTANTS"]

MUTANTS: Final[dict[str, Mutant]] = {**DISPATCH, **OWNER}
KILLERS: Final[dict[str, int]] = {}
"""A seed that finds it."""
