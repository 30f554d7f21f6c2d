"""Filters of commands (DESIGN §12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracklog.schemas.condition import Condition


class Where(Condition):
    """The condition that a command is given with `--where`."""

    def __init__(self, expression: str, sample: Mapping[str, Any]) -> None:
        super().__init__(expression, sample, "--where")
