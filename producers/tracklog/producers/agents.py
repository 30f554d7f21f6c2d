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
from pathlib import Path
from types import ModuleType

from tracklog.producers.turn import Agent
from tracklog.schemas.errors import InputError

__all__ = ["load_agent"]


def load_agent(spec: str) -> Agent:
    """The agent that `MODULE:AGENT` names. Raises InputError that says what is not there, or where it fails."""
    module_name, separator, name = spec.partition(":")
    if not separator or not module_name or not name or not all(part.isidentifier() for part in module_name.split(".")):
        raise InputError(f"{spec!r} names no agent", hint="MODULE:AGENT, as in my_agents.travel:agent")
    module = _imported(spec, module_name)
    if not hasattr(module, name):
        raise InputError(f"{module_name} ({module.__file__}) has no {name!r}", hint=_known(module))
    found = getattr(module, name)
    if callable(found) and not isinstance(found, Agent):
        found = _made(spec, found)
    if not isinstance(found, Agent):
        raise InputError(
            f"{spec} is a {type(found).__name__}, not an Agent",
            hint="tracklog.producers.turn.Agent(name, model, tools), or a function without parameters that gives one",
        )
    return found


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
