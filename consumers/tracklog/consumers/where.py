"""Filters of commands (DESIGN §12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tracklog.schemas.condition import Condition


class Where(Condition):
    """The condition that a command is given with `--where`. `applies`: what the command can be asked about at all."""

    def __init__(
        self, expression: str, sample: Mapping[str, Any], applies: Callable[[Mapping[str, Any]], bool] = lambda _: True
    ) -> None:
        self._applies = applies
        super().__init__(expression, sample, "--where")

    def matches(self, fields: Mapping[str, Any]) -> bool:
        return super().matches(fields) and self._applies(fields)
