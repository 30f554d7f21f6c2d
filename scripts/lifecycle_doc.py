"""Writes docs/lifecycle.md from the tables in lifecycle.py; `--check` only says whether it is up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from scripts.page import write_or_check
from tracklog.schemas.lifecycle import APPROVAL, CALL, ENDED, OPEN_INTENT, TRAJECTORY

PAGE = Path(__file__).resolve().parent.parent / "docs" / "lifecycle.md"
HEAD = """\
# Lifecycles

Written by `scripts/lifecycle_doc.py` from the tables in `schemas/tracklog/schemas/lifecycle.py`; change it there.

Each arrow is an event. Where one event can go two ways, the word that decides stands in brackets. What has no
arrow is not allowed, and a writer refuses to write it. If the log holds one all the same, it is a fact: it is
folded, counted as irregular and shown.

What the events carry is on the page [events](events.md).
"""
Table = Mapping[Any, Mapping[str, Any]]
"""State -> step -> next state."""
TABLES: Mapping[str, tuple[str, Table]] = {
    "A trajectory": (
        "It is claimed before anything else, and may be claimed again at any time.\n"
        "It ends once, and only when no call is open.",
        TRAJECTORY,
    ),
    "A tool call": (
        "From the model's proposal to a known outcome. From the intent on it may have happened, so it is never\n"
        "forgotten: either its outcome becomes known, or a person is asked.",
        CALL,
    ),
    "An approval": ("One answer decides. Late and double answers are refused and recorded.", APPROVAL),
}


def page() -> str:
    """The whole page as text."""
    parts = [HEAD]
    for title, (about, table) in TABLES.items():
        parts += [f"## {title}\n\n{about}\n", *_diagram(table), "", *_staying(table)]
    open_states = ", ".join(f"*{state.value}*" for state in CALL if state in OPEN_INTENT)
    parts.append(f"A call is **open** while it is {open_states}: a trajectory with an open call cannot end.")
    ended = ", ".join(f"*{state.value}*" for state in TRAJECTORY if state in ENDED)
    parts.append(f"A trajectory has **ended** when it is {ended}.")
    return "\n".join(parts).rstrip() + "\n"


def _diagram(table: Table) -> Iterator[str]:
    """The arrows between different states; those that stay where they are would hide the others."""
    yield "```mermaid\nstateDiagram-v2"
    yield from (f'    state "{state.value}" as {_id(state)}' for state in table if " " in state.value)
    yield f"    [*] --> {_id(next(iter(table)))}"
    for state, moves in table.items():
        for after in dict.fromkeys(moves.values()):
            if after is not state:
                steps = [_words(step) for step, target in moves.items() if target is after]
                yield f"    {_id(state)} --> {_id(after)} : {', '.join(steps)}"
    yield from (f"    {_id(state)} --> [*]" for state, moves in table.items() if _is_last(state, moves))
    yield "```"


def _staying(table: Table) -> Iterator[str]:
    staying = {state: _events([s for s, after in moves.items() if after is state]) for state, moves in table.items()}
    if not any(staying.values()):
        return
    yield "Allowed without a change of state:\n\n| in | events |\n| --- | --- |"
    for events in filter(None, dict.fromkeys(staying.values())):
        states = ", ".join(state.value for state in table if staying[state] == events)
        yield f"| {states} | {', '.join(f'`{event}`' for event in events)} |"
    yield ""


def _events(steps: list[str]) -> tuple[str, ...]:
    """The types of events that make these steps, each once."""
    return tuple(dict.fromkeys(step.partition(":")[0] for step in steps))


def _is_last(state: StrEnum, moves: Mapping[str, StrEnum]) -> bool:
    return all(after is state for after in moves.values())


def _id(state: StrEnum) -> str:
    return state.value.replace(" ", "_")


def _words(step: str) -> str:
    """A step as a label: Mermaid ends a label at a colon."""
    event, _, word = step.partition(":")
    return f"{event} ({word})" if word else event


if __name__ == "__main__":
    raise SystemExit(write_or_check(PAGE, page()))
