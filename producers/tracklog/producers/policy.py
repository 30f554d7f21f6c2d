"""What an agent may do without asking. Pure: the same call gets the same ruling when it is replayed."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from tracklog.producers.tools import Tool
from tracklog.schemas.values import ToolCall

__all__ = ["ALLOW", "AllowAll", "Decision", "Policy", "deny"]


class Decision(NamedTuple):
    """`rule` is in words; the model is given it when the call is refused."""

    allowed: bool
    rule: str = ""


ALLOW: Final = Decision(True)


def deny(rule: str) -> Decision:
    """The call is not made, and the model is told why."""
    return Decision(False, rule)


class Policy(Protocol):
    """Rules on calls. `version` is recorded with every ruling."""

    @property
    def version(self) -> str: ...

    def decide(self, call: ToolCall, tool: Tool) -> Decision:
        """Reads nothing but its arguments."""


class AllowAll:
    """Every call of a known tool with fitting arguments."""

    version: Final = "allow-all"

    def decide(self, call: ToolCall, tool: Tool) -> Decision:
        return ALLOW
