"""What is known of the effects of recorded tools. Nobody ever runs a recorded call (DESIGN §4): this is for readers.

A tool that is not named here is opaque.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tracklog.schemas.values import Effect

SWE_AGENT: Final = "swe-agent"
AIRLINE: Final = "airline"

AIRLINE_READS: Final = (
    "calculate",
    "get_reservation_details",
    "get_user_details",
    "list_all_airports",
    "search_direct_flight",
    "search_onestop_flight",
    "think",
)
"""The tools of the airline runs that change nothing."""
_AIRLINE: Final[Mapping[str, Effect]] = dict.fromkeys(AIRLINE_READS, Effect.READONLY)

_SWE_AGENT: Final[Mapping[str, Effect]] = {
    **dict.fromkeys(
        (
            "find_file",
            "goto",
            "open",
            "scroll_down",
            "scroll_up",
            "search_dir",
            "search_file",
        ),
        Effect.READONLY,
    ),
    **dict.fromkeys(("create", "edit", "insert", "str_replace_editor"), Effect.LOCAL),
    "submit": Effect.OPAQUE,
}

SWE_AGENT_COMMANDS: Final = frozenset(_SWE_AGENT)
"""The commands of the agent's own interface; every other action is a shell command, and its tool is `bash`."""

_KNOWN: Final[Mapping[str, Mapping[str, Effect]]] = {AIRLINE: _AIRLINE, SWE_AGENT: _SWE_AGENT}


def effect_of(dataset: str, tool: str) -> Effect:
    """The effect class of a recorded tool."""
    return _KNOWN.get(dataset, {}).get(tool, Effect.OPAQUE)
