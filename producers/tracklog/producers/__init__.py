"""What a program needs to be durable, in one place:

    from tracklog.producers import Setup, ToolSet, durable, tool

Each name is imported when it is first asked for, so that a command that needs none of them starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tracklog.producers.connection import Connection, connected
    from tracklog.producers.library import durable
    from tracklog.producers.session import Session
    from tracklog.producers.settle import Timing
    from tracklog.producers.setup import Setup
    from tracklog.producers.tools import CallContext, ProbeAnswer, Probed, Tool, ToolSet, tool
    from tracklog.producers.turn import Agent, run_turns

__all__ = [
    "Agent",
    "CallContext",
    "Connection",
    "ProbeAnswer",
    "Probed",
    "Session",
    "Setup",
    "Timing",
    "Tool",
    "ToolSet",
    "connected",
    "durable",
    "run_turns",
    "tool",
]

_HOMES: Final = {
    "connection": ("Connection", "connected"),
    "library": ("durable",),
    "session": ("Session",),
    "settle": ("Timing",),
    "setup": ("Setup",),
    "tools": ("CallContext", "ProbeAnswer", "Probed", "Tool", "ToolSet", "tool"),
    "turn": ("Agent", "run_turns"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
