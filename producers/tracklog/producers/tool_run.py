"""Running one call: whatever a tool does, there is a result that the model can see.

    what the tool does                               status      known
    returns                                          ok          yes
    raises, returns what is not JSON                 error       yes
    does not exist, arguments that do not fit        error       yes: nothing was started
    has a deadline that is past                      expired     yes: nothing was started
    takes longer than its `timeout_s`, TimeoutError  timeout     no: its effect may have happened
    raises ToolOutcomeUnknown                        unknown     no
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracklog.infra.clock import Clock
from tracklog.producers.tools import CallContext, Probed, Tool
from tracklog.schemas.values import ResultStatus

__all__ = ["Ran", "check_arguments", "run_probe", "run_tool"]


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a call. `output` is what the model is given, at most `output_bytes_max` bytes of UTF-8."""

    status: ResultStatus
    output: str
    duration_ms: int = 0

    @property
    def known(self) -> bool:
        """False: nobody knows whether the effect happened; the call is settled by its class."""
        return self.status not in (ResultStatus.TIMEOUT, ResultStatus.UNKNOWN)


def check_arguments(tool: Tool, arguments_text: str) -> Mapping[str, Any] | str:
    """The arguments, or in words what is wrong with them."""
    raise AssertionError


async def run_tool(
    tool: Tool, context: CallContext, arguments_text: str, *, clock: Clock, output_bytes_max: int
) -> Ran:
    """Checks the arguments, then the deadline as the last thing before the tool has its turn, and runs it.

    Never raises for what a tool does. CancelledError passes through.
    """
    raise AssertionError


async def run_probe(tool: Tool, context: CallContext, arguments_text: str, *, output_bytes_max: int) -> Probed:
    """Asks the tool's probe. One that raises, hangs or gives something else answers UNKNOWN, with why."""
    raise AssertionError
