"""The recorded runs that come with the package (`NOTICE.md`): 120 of an airline's agent, 5 of coding agents."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from tracklog.producers.importers.chat import parse_chat_jsonl
from tracklog.producers.importers.run import BadRun, Run
from tracklog.producers.importers.traj import parse_traj

__all__ = ["SHIPPED_RUNS", "shipped_file", "shipped_files", "shipped_runs"]

SHIPPED_RUNS: Final = 125
AIRLINE: Final = "airline_runs.jsonl"
AIRLINE_MODEL: Final = "gpt-4o"
"""Said by the name of the file that the runs come from, not by the runs."""

_PACKED: Final = ".xz"


def shipped_files() -> tuple[str, ...]:
    """The names of the files, in the order of `shipped_runs`."""
    folder = _root().joinpath("swe_agent")
    names = sorted(one.name.removesuffix(_PACKED) for one in folder.iterdir() if one.name.endswith(_PACKED))
    return (AIRLINE, *(f"swe_agent/{name}" for name in names))


def shipped_file(name: str) -> bytes:
    """The content of one of `shipped_files`, unpacked."""
    return lzma.decompress(_root().joinpath(name + _PACKED).read_bytes())


def shipped_runs() -> Iterator[Run | BadRun]:
    """All of them, as the importers read them; none is bad."""
    for name in shipped_files():
        data = shipped_file(name)
        if name == AIRLINE:
            yield from parse_chat_jsonl(data.splitlines(keepends=True), name, model=AIRLINE_MODEL)
        else:
            yield parse_traj(data, name)


def _root() -> Traversable:
    return resources.files(__name__)
