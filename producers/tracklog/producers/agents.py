"""Agents by name: `MODULE:AGENT`, as the command line names them.

AGENT is a module attribute that is an `Agent`, or a function without parameters that makes one. The module is looked
for as `python -m` does: in the current directory first.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import ModuleType

from tracklog.infra.modules import failed, imported, is_module
from tracklog.producers.tools import Tool, ToolSet
from tracklog.producers.turn import Agent
from tracklog.schemas.errors import InputError

__all__ = ["load_agent", "load_tools"]


def load_agent(spec: str) -> Agent:
    """The agent that `MODULE:AGENT` names. Raises InputError that says what is not there, or where it fails."""
    module_name, separator, name = spec.partition(":")
    if not separator or not name or not is_module(module_name):
        raise InputError(f"{spec!r} names no agent", hint="MODULE:AGENT, as in my_agents.travel:agent")
    found = _named(spec, imported(spec, module_name), name)
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
        if not is_module(module_name) or (separator and not name):
            raise InputError(f"{spec!r} names no tools", hint="MODULE or MODULE:NAME, as in my_agents.travel")
        module = imported(spec, module_name)
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


def _named(spec: str, module: ModuleType, name: str) -> object:
    """The attribute, or what it makes when it is a function."""
    if not hasattr(module, name):
        raise InputError(f"{module.__name__} ({module.__file__}) has no {name!r}", hint=_known(module))
    found: object = getattr(module, name)
    return _made(spec, found) if callable(found) and not isinstance(found, Agent | Tool) else found


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
        raise failed(spec, "fails", error) from error


def _known(module: ModuleType) -> str:
    agents = sorted(name for name, value in vars(module).items() if isinstance(value, Agent))
    return f"its agents: {', '.join(agents)}" if agents else "it has no Agent at module level"
