"""Tools as async functions, for frameworks that call tools themselves (DESIGN §7).

A framework is given `session.bind(tool)` in place of the function. When it calls it, the call of the last reply
with that name and these arguments is made through the session, once; the framework gets its output.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson
from pydantic_core import PydanticSerializationError, to_jsonable_python

from tracklog.producers.calls import Result
from tracklog.producers.tools import CallContext, Tool
from tracklog.schemas.errors import SessionMisused, TracklogError
from tracklog.schemas.values import ToolCall

__all__ = ["Bound"]


class Bound:
    """The calls of the last reply that a framework has not made yet. `make` is the session's `call_tool`."""

    def __init__(self, make: Callable[[ToolCall], Awaitable[Result]]) -> None:
        self._make = make
        self._open: list[ToolCall] = []
        self._failed: TracklogError | None = None

    def propose(self, calls: Sequence[ToolCall]) -> None:
        """Takes in the calls of a reply; those of the one before are over."""
        self._open = list(calls)

    def check(self) -> None:
        """Frameworks tell the model of errors of tools. One of the session ends the run instead: it is raised again."""
        if self._failed is not None:
            raise self._failed

    def bind(self, tool: Tool) -> Callable[..., Awaitable[str]]:
        """The tool as a function with the name, the docstring and the parameters of the one that it was made of.

        Calling it gives what the model is to see. Raises SessionMisused when the last reply has no such call (left),
        else as `call_tool` does.
        """
        fn = getattr(tool.call, "__wrapped__", None)
        signature = _signature(fn)

        async def call(*positional: Any, **named: Any) -> str:
            self.check()
            given = dict(signature.bind(*positional, **named).arguments) if signature is not None else named
            try:
                return (await self._make(self._take(tool, given, signature))).output
            except TracklogError as error:
                self._failed = error
                raise

        call.__name__ = call.__qualname__ = tool.name
        call.__doc__ = tool.description
        if signature is not None:
            setattr(call, "__signature__", signature)  # noqa: B010 - functions have it, their type does not
            kept = {name: parameter.annotation for name, parameter in signature.parameters.items()}
            call.__annotations__ = {**kept, "return": str}
        return call

    def _take(self, tool: Tool, given: Mapping[str, Any], signature: inspect.Signature | None) -> ToolCall:
        wanted = _comparable(given, signature)
        for position, call in enumerate(self._open):
            if call.tool == tool.name and _comparable(_loaded(call.arguments), signature) == wanted:
                return self._open.pop(position)
        left = ", ".join(f"{call.tool} with {call.arguments}" for call in self._open) or "none"
        raise SessionMisused(
            f"{tool.name} was called with {dict(given)!r}; of the last reply's calls are left: {left}",
            hint="a bound tool is called once for each call of the last reply, with the arguments as they are",
        )


def _signature(fn: Callable[..., Any] | None) -> inspect.Signature | None:
    """Of the function, types resolved, without what the session gives."""
    if fn is None:
        return None
    hints = typing.get_type_hints(fn)
    whole = inspect.signature(fn)
    shown = [
        one.replace(annotation=hints.get(name, one.annotation))
        for name, one in whole.parameters.items()
        if hints.get(name) is not CallContext
    ]
    return whole.replace(parameters=shown, return_annotation=str)


def _loaded(arguments: str) -> Mapping[str, Any]:
    try:
        value = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return {"": arguments}
    return value if isinstance(value, dict) else {"": arguments}


def _comparable(given: Mapping[str, Any], signature: inspect.Signature | None) -> Any:
    """As JSON, with the defaults of what is left out: frameworks fill them in."""
    parameters = {} if signature is None else signature.parameters
    defaults = {name: one.default for name, one in parameters.items() if one.default is not inspect.Parameter.empty}
    try:
        return to_jsonable_python({**defaults, **given})
    except PydanticSerializationError:
        return dict(given)
