"""Which processors a command is about: those that come with Tracklog, installed ones, and what is loaded by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tracklog.infra.settings import Settings
from tracklog.processors import agenda, trajectories
from tracklog.processors.loading import BUILTIN, OPTIONAL, installed, load_folder, load_processor, only_one_each
from tracklog.processors.processor import Processor
from tracklog.processors.running import AnyProcessor
from tracklog.schemas.errors import InputError

__all__ = ["Folder", "Load", "available", "chosen", "the_one"]

Load = Annotated[
    list[str] | None,
    typer.Option("--load", metavar="MODULE:CLASS", help="Load a processor that is not installed; again for more."),
]
Folder = Annotated[
    Path | None, typer.Option("--folder", metavar="DIR", help="Load every processor in a folder's .py files.")
]


def available(load: Sequence[str] | None, folder: Path | None) -> list[Processor[Any]]:
    """By name and version. Raises InputError that names what is wrong with one."""
    found = [*(kind() for kind in (*BUILTIN, *OPTIONAL)), *installed(), *map(load_processor, load or ())]
    if folder is not None:
        found += load_folder(folder)
    return sorted(only_one_each(found), key=lambda one: (one.name, one.version))


def chosen(processors: Sequence[Processor[Any]], names: Sequence[str] | None) -> tuple[list[Processor[Any]], bool]:
    """Those of the names; where none is given, all but those that must be named. And whether the projection of the
    trajectories is among them."""
    if not names:
        return [one for one in processors if not isinstance(one, OPTIONAL)], True
    known = {one.name for one in processors} | {trajectories.NAME}
    for name in names:
        if name not in known:
            raise InputError(f"there is no processor {name!r}", hint=f"one of {', '.join(sorted(known))}")
    return [one for one in processors if one.name in names], trajectories.NAME in names


def the_one(processors: Sequence[Processor[Any]], name: str, settings: Settings) -> AnyProcessor:
    """The newest version of a name. Raises InputError."""
    if name == trajectories.NAME:
        return trajectories.Trajectories(settings.projection)
    if name == agenda.NAME:
        raise InputError(
            f"{name!r} is the router's: what it has posted is taken off it, which the log does not say",
            hint=f"to fold it anew: tracklog projections drop {name}, and `tracklog route` does the rest",
        )
    of_name, _ = chosen(processors, [name])
    return of_name[-1]
