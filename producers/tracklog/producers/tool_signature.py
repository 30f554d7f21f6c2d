"""A function's signature as the schema of a tool, and calls of the function with arguments that fit it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Signature"]

Call = Callable[[Any, Mapping[str, Any]], Awaitable[Any]]


@dataclass(frozen=True)
class Signature:
    """What a tool takes from its function."""

    name: str
    description: str
    schema: Mapping[str, Any]
    call: Call
    problem: Callable[[Mapping[str, Any]], str]

    @classmethod
    def of(cls, function: Callable[..., Any], context_type: type) -> Signature:
        """Raises InvalidTool."""
        raise AssertionError

    def asked_of(self, probe: Callable[..., Any], context_type: type) -> Call:
        """The probe as it is called: with the arguments of the tool that it names."""
        raise AssertionError
