"""Agents by name: `MODULE:AGENT`, as the command line names them.

AGENT is a module attribute that is an `Agent`, or a function without parameters that makes one. The module is looked
for as `python -m` does: in the current directory first.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from tracklog.producers.tools import Tool, ToolSet
from tracklog.producers.turn import Agent
from tracklog.schemas.errors import InputError

__all__ = ["load_agent", "load_tools"]


def load_agent(spec: str) -> Agent:
    """The agent that `MODULE:AGENT` names. Raises InputError that says what is not there, or where it fails."""
    module_name, separator, name = spec.partition(":")
    if not separator or not name or not _is_module(module_name):
        raise InputError(f"{spec!r} names no agent", hint="MODULE:AGENT, as in my_agents.travel:agent")
    found = _named(spec, _imported(spec, module_name), name)
    if not isinstance(found, Agent):
        raise InputError(
            f"{spec} is a {type(found).__name__}, not an Agent",
            hint="tracklog.producers.turn.Agent(name, model, tools), or a function without parameters that gives one",
        )
    return found


def load_tools(specs: Iterable[str]) -> ToolSet:
    """The tools that `MODULE` or `MODULE:NAME` name: tools, tool sets and agents of a module, or the one called NAME.

    Raises InputError that says what is not there or where it fails, InvalidTool when two tools have one name.
    """
    tools: dict[int, Tool] = {}
    for spec in specs:
        module_name, separator, name = spec.partition(":")
        if not _is_module(module_name) or (separator and not name):
            raise InputError(f"{spec!r} names no tools", hint="MODULE or MODULE:NAME, as in my_agents.travel")
        module = _imported(spec, module_name)
        things = [_named(spec, module, name)] if separator else list(vars(module).values())
        found = [one for thing in things for one in _tools_of(thing)]
        if not found:
            raise InputError(
                f"there is no tool in {spec}", hint="a Tool (made by @tool), a ToolSet or an Agent that has some"
            )
        tools.update((id(one), one) for one in found)
    return ToolSet.of(*tools.values())


def _tools_of(thing: object) -> Iterable[Tool]:
    if isinstance(thing, Tool):
        return (thing,)
    if isinstance(thing, Agent):
        return thing.tools
    return thing if isinstance(thing, ToolSet) else ()


def _is_module(name: str) -> bool:
    return bool(name) and all(part.isidentifier() for part in name.split("."))


def _named(spec: str, module: ModuleType, name: str) -> object:
    """The attribute, or what it makes when it is a function."""
    if not hasattr(module, name):
        raise InputError(f"{module.__name__} ({module.__file__}) has no {name!r}", hint=_known(module))
    found: object = getattr(module, name)
    return _made(spec, found) if callable(found) and not isinstance(found, Agent | Tool) else found


def _imported(spec: str, module_name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
        importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (error.name == module_name or module_name.startswith(f"{error.name}.")):
            raise InputError(
                f"{spec}: there is no module {error.name!r}",
                hint=f"looked for in {here} and in what is installed",
            ) from error
        raise _failed(spec, "fails to import", error) from error
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        raise _failed(spec, "fails to import", error) from error


def _made(spec: str, factory: object) -> object:
    assert callable(factory)
    try:
        inspect.signature(factory).bind()
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{spec} cannot be called without arguments: {error}", hint="an Agent, or a function without parameters"
        ) from error
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise _failed(spec, "fails", error) from error


def _failed(spec: str, what: str, error: BaseException) -> InputError:
    return InputError(f"{spec} {what}: {type(error).__name__}: {error}{_place(error)}")


def _place(error: BaseException) -> str:
    """The line that failed, of code that is not this module's."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f" ({error.filename}:{error.lineno})"
    own = (str(Path(__file__)), importlib.__file__)
    outside = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in own and not frame.filename.startswith("<frozen")
    ]
    return f" ({outside[-1].filename}:{outside[-1].lineno})" if outside else ""


def _known(module: ModuleType) -> str:
    agents = sorted(name for name, value in vars(module).items() if isinstance(value, Agent))
    return f"its agents: {', '.join(agents)}" if agents else "it has no Agent at module level"
