"""Processors by name: of the entry-point group `tracklog.processors`, `MODULE:CLASS`, or every one in a folder's files.

What is wrong with one is said before it is started, with its name and the way out.
"""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tracklog.infra.modules import failed, imported, is_module
from tracklog.processors import agenda, trajectories
from tracklog.processors.builtin.activity import Activity
from tracklog.processors.builtin.doubts import Doubts
from tracklog.processors.builtin.drift import Drift
from tracklog.processors.builtin.pace import Paces
from tracklog.processors.builtin.refused import Refused
from tracklog.processors.builtin.spend import Spend
from tracklog.processors.builtin.tool_stats import ToolStats
from tracklog.processors.processor import Processor, Shape
from tracklog.processors.shapes import NAME, RESERVED
from tracklog.processors.spans import Spans
from tracklog.schemas.errors import InputError, InvalidProcessor
from tracklog.schemas.events import EVENT_TYPES

__all__ = [
    "BUILTIN",
    "ENTRY_POINTS",
    "OPTIONAL",
    "checked",
    "installed",
    "load_folder",
    "load_processor",
    "only_one_each",
]

ENTRY_POINTS: Final = "tracklog.processors"
BUILTIN: Final[tuple[type[Processor[Any]], ...]] = (Activity, Doubts, Drift, Paces, Spend, ToolStats, Refused)
"""Those that come with Tracklog, beside the trajectories' projection and the router's agenda."""
OPTIONAL: Final[tuple[type[Processor[Any]], ...]] = (Spans,)
"""Those that come with it too, and run only where they are named."""
_METHODS: Final = {
    "key": ("seen",),
    "start": ("key",),
    "apply": ("state", "seen"),
    "snapshot": ("state",),
    "restore": ("key", "data"),
    "writes": ("key", "before", "after"),
    "emit": ("key", "after", "seen"),
    "until_ms": ("key", "state"),
    "forget": ("key", "state"),
}


def load_processor(spec: str) -> Processor[Any]:
    """The processor that `MODULE:CLASS` names. Raises InputError that says what is not there, or where it fails."""
    module_name, _, name = spec.partition(":")
    if not name or not is_module(module_name):
        raise InputError(f"{spec!r} names no processor", hint="MODULE:CLASS, as in my_views.spend:Spend")
    module = imported(spec, module_name)
    if not hasattr(module, name):
        known = ", ".join(sorted(one.__name__ for one in _classes_of(module))) or "none"
        raise InputError(f"{module_name} ({module.__file__}) has no {name!r}", hint=f"its processors: {known}")
    return checked(spec, getattr(module, name))


def load_folder(folder: Path) -> list[Processor[Any]]:
    """Every processor class defined in the folder's .py files, by file name. Raises InputError."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder", hint="a folder with .py files that define processors")
    found: list[Processor[Any]] = []
    for path in sorted(folder.glob("*.py")):
        module = _imported_file(path)
        found += [checked(f"{path}:{one.__name__}", one) for one in _classes_of(module)]
    if not found:
        raise InputError(f"no file in {folder} defines a processor", hint="class Mine(Processor[...]): ...")
    return found


def installed() -> list[Processor[Any]]:
    """Those that installed packages register as entry points of `tracklog.processors`, by name."""
    found: list[Processor[Any]] = []
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda one: one.name):
        spec = f"{point.name} = {point.value}"
        try:
            loaded = point.load()
        except (Exception, SystemExit) as error:
            raise failed(spec, f"(entry point of {ENTRY_POINTS}) fails to load", error) from error
        found.append(checked(spec, loaded))
    return found


def only_one_each(processors: Iterable[Processor[Any]]) -> list[Processor[Any]]:
    """Raises InvalidProcessor when two have one name and version; two versions of one may run side by side."""
    taken: dict[tuple[str, int], Processor[Any]] = {}
    for one in processors:
        other = taken.setdefault((one.name, one.version), one)
        if other is not one and type(other) is not type(one):
            raise InvalidProcessor(
                f"{_named(type(other))} and {_named(type(one))} both are {one.name!r}, version {one.version}",
                hint="give one of them another name; they would write over each other",
            )
    return list(taken.values())


def checked(spec: str, found: object) -> Processor[Any]:
    """An instance of a processor class. Raises InvalidProcessor that names what is wrong with it."""
    if not inspect.isclass(found) or not issubclass(found, Processor):
        raise InvalidProcessor(
            f"{spec} is no processor class",
            hint="class Mine(Processor[...]) from tracklog.processors.processor",
        )
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise InvalidProcessor(f"{spec} does not define {missing}")
    _check_names(spec, found)
    _check_reads(spec, found.reads)
    _check_layout(spec, found)
    for name, parameters in _METHODS.items():
        _check_method(spec, name, getattr(found, name), parameters)
    try:
        return found()
    except (Exception, SystemExit) as error:
        raise failed(spec, "cannot be made without arguments", error) from error


def _check_names(spec: str, kind: type[Processor[Any]]) -> None:
    name, version = getattr(kind, "name", None), getattr(kind, "version", None)
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise InvalidProcessor(
            f"{spec} has the name {name!r}", hint="2 to 63 small letters, digits and -, a letter first"
        )
    if name in (agenda.NAME, trajectories.NAME):
        raise InvalidProcessor(f"{spec} has the name {name!r}, which is Tracklog's own", hint="give it another name")
    if type(version) is not int or version < 1:
        raise InvalidProcessor(f"{spec} has the version {version!r}", hint="a whole number from 1")


def _check_reads(spec: str, reads: object) -> None:
    if reads is None:
        return
    if not isinstance(reads, frozenset | set):
        raise InvalidProcessor(f"{spec} reads {reads!r}", hint="a frozenset of names of event types, or None for all")
    for name in sorted(map(str, reads)):
        if name not in EVENT_TYPES:
            near = difflib.get_close_matches(name, EVENT_TYPES, n=1)
            raise InvalidProcessor(
                f"{spec} reads {name!r}, which is no event type",
                hint=f"did you mean {near[0]!r}?" if near else f"one of {', '.join(sorted(EVENT_TYPES))}",
            )


def _check_layout(spec: str, kind: type[Processor[Any]]) -> None:
    for name, shape in kind.layout.items():
        if NAME.fullmatch(name) is None or name in RESERVED:
            raise InvalidProcessor(
                f"{spec} has the name {name!r} in its layout",
                hint=f"2 to 63 small letters, digits and -, a letter first; none of {', '.join(sorted(RESERVED))}",
            )
        if not isinstance(shape, Shape):
            raise InvalidProcessor(f"the layout of {spec} says {shape!r} of {name!r}", hint="one of Shape")


def _check_method(spec: str, name: str, method: Callable[..., Any], parameters: Sequence[str]) -> None:
    """A plain method: one that is async or a generator where a value is asked for would never be run."""
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise InvalidProcessor(f"{name} of {spec} is async", hint="a processor is pure: it waits for nothing")
    if inspect.isgeneratorfunction(method) and name not in ("writes", "emit", "forget"):
        raise InvalidProcessor(f"{name} of {spec} is a generator", hint="return the value")
    try:
        inspect.signature(method).bind("self", *parameters)
    except TypeError as error:
        raise InvalidProcessor(
            f"{name} of {spec} cannot be called with ({', '.join(parameters)}): {error}",
            hint="what it needs is in the state and the event; anything else would make it impure",
        ) from error


def _classes_of(module: ModuleType) -> list[type[Processor[Any]]]:
    """Those that the module itself defines, in the order of its text."""
    return [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, Processor)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    ]


def _imported_file(path: Path) -> ModuleType:
    name = f"tracklog_processors_of.{path.parent.name}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path} cannot be imported")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise failed(str(path), "fails to import", error) from error
    return module


def _named(kind: type[Any]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"
