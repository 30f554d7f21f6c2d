"""Control records: what operators say to all processes of a kind, in the order in which the log has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracklog.schemas.values import Name, Text, Value

__all__ = ["CONTROL_TYPES", "TOOLS_KEY", "ControlBody", "ToolPaused", "ToolResumed"]

TOOLS_KEY: Final = "tools"
"""The key of all records about tools: one order for all of them."""


class ControlBody(Value):
    """Base of all control records; the class name is the record's type."""


class ToolPaused(ControlBody):
    """No dispatcher begins a call of the tool from here on."""

    tool: Name
    by: Name
    reason: Text = ""


class ToolResumed(ControlBody):
    """Ends the pause of the tool."""

    tool: Name
    by: Name
    reason: Text = ""


CONTROL_TYPES: Final[Mapping[str, type[ControlBody]]] = {cls.__name__: cls for cls in (ToolPaused, ToolResumed)}
