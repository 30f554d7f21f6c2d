"""Running one call: whatever a tool does, there is a result that the model can see.

    what the tool does                               status      known
    returns                                          ok          yes
    raises, or returns what is not JSON              error       yes
    is not there, or is given what does not fit      error       yes: nothing was started
    has a deadline that is past                      expired     yes: nothing was started
    takes longer than its `timeout_s`, TimeoutError  timeout     no: its effect may have happened
    raises ToolOutcomeUnknown, or is cancelled       unknown     no
    raises ToolPending                               unknown     not yet: it answers by itself (`pending_s`)

A time-out gives up waiting, nothing more: a function in a thread goes on, and so may an async one that holds on.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from pydantic import BaseModel

from tracklog.infra.clock import Clock
from tracklog.producers.bodies import cut_text
from tracklog.producers.tools import CallContext, ProbeAnswer, Probed, Tool, ToolSet
from tracklog.schemas.errors import ToolExpired, ToolOutcomeUnknown, ToolPending
from tracklog.schemas.values import ResultStatus

__all__ = ["Ran", "check_arguments", "fitted", "no_such_tool", "run_precondition", "run_probe", "run_tool", "unfit"]

STOP_S: Final = 1.0
"""How long a call that was cancelled may take to clean up before it is left alone."""
ERROR_CHARS_MAX: Final = 2000
"""Of what a tool says when it raises."""
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a call. `output` is what the model is given, at most `output_bytes_max` bytes of UTF-8; where
    that is not all, `whole` is everything. `pending_s`: the seconds in which the tool will answer by itself."""

    status: ResultStatus
    output: str
    duration_ms: int = 0
    whole: str | None = field(default=None, repr=False)
    pending_s: float | None = None

    @property
    def known(self) -> bool:
        """False: nobody knows whether the effect happened; the call is to be settled by its class."""
        return self.status not in (ResultStatus.TIMEOUT, ResultStatus.UNKNOWN)


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a coroutine ended: with a value, or an error."""

    value: Any = None
    error: BaseException | None = None


def no_such_tool(name: str, tools: ToolSet) -> Ran:
    """The result of a call of a tool that the model made up."""
    known = ", ".join(tools.names) or "none"
    return Ran(ResultStatus.ERROR, f"there is no tool {_shown(name)!r}; there are: {known}")


def check_arguments(tool: Tool, arguments_text: str) -> Mapping[str, Any] | str:
    """The arguments, or in words what is wrong with them. No text at all is no arguments."""
    try:
        arguments = json.loads(arguments_text or "{}", parse_constant=_refuse, parse_float=_finite)
        if not isinstance(arguments, dict):
            return f"the arguments are no JSON object but {type(arguments).__name__}"
        problem = tool.problem(arguments)
    except (ValueError, RecursionError) as error:
        return f"the arguments are not JSON: {_shown(str(error))}"
    except Exception as error:  # noqa: BLE001 - the checks of a tool's own types may raise anything
        return f"the arguments could not be checked: {_named(error)}"
    return f"the arguments do not fit: {_shown(problem)}" if problem else arguments


def unfit(tools: ToolSet, name: str, arguments_text: str) -> str:
    """What is wrong with arguments for the tool of this name, in words; "" for nothing, and for a tool that is gone."""
    tool = tools.get(name)
    found = {} if tool is None else check_arguments(tool, arguments_text)
    return found if isinstance(found, str) else ""


async def run_tool(
    tool: Tool, context: CallContext, arguments_text: str, *, clock: Clock, output_bytes_max: int
) -> Ran:
    """Checks the arguments, then the deadline as the last thing before the tool has its turn, and runs it.

    Never raises for what a tool does. CancelledError and KeyboardInterrupt pass through.
    """
    arguments = check_arguments(tool, arguments_text)
    if isinstance(arguments, str):
        return Ran(ResultStatus.ERROR, fitted(arguments, output_bytes_max))
    began = clock.monotonic_s()
    if clock.now_us() >= context.deadline_us:
        return Ran(ResultStatus.EXPIRED, "the call was not started: its deadline had passed")
    ended = await _bounded(lambda: tool.call(context, arguments), tool.timeout_s)
    status, said = _judged(tool, ended)
    text = tool.clean(_SURROGATES.sub("\ufffd", said))
    output = fitted(text, output_bytes_max)
    duration_ms = round((clock.monotonic_s() - began) * 1000)
    error = ended.error if ended is not None else None
    pending_s = error.within_s if isinstance(error, ToolPending) else None
    return Ran(status, output, duration_ms, whole=None if output == text else text, pending_s=pending_s)


def timely(tool: Tool, deadline_us: int, latest_us: Callable[[], int]) -> Tool:
    """The tool, which looks at its deadline last of all, in the task that sends."""

    async def call(context: CallContext, arguments: Mapping[str, Any]) -> Any:
        if latest_us() >= deadline_us:
            raise ToolExpired(f"call {context.call_id!r} was not started: its deadline had passed")
        return await tool.call(context, arguments)

    timed = copy(tool)  # `replace` would check its schema and name its version again, at each call
    object.__setattr__(timed, "call", call)
    return timed


async def run_probe(tool: Tool, context: CallContext, arguments_text: str, *, output_bytes_max: int) -> Probed:
    """Asks the tool's probe. One that is not there, raises, hangs or gives something else answers UNKNOWN."""
    probe, arguments = tool.probe, check_arguments(tool, arguments_text)
    if probe is None or isinstance(arguments, str):
        return Probed(ProbeAnswer.UNKNOWN, arguments if isinstance(arguments, str) else "there is no probe")
    ended = await _bounded(lambda: probe(context, arguments), tool.timeout_s)
    if ended is None:
        return Probed(ProbeAnswer.UNKNOWN, f"the probe gave no answer within {tool.timeout_s:g} s")
    if ended.error is not None:
        return Probed(ProbeAnswer.UNKNOWN, f"the probe raised {_named(ended.error, tool.clean)}")
    if not isinstance(ended.value, Probed):
        return Probed(ProbeAnswer.UNKNOWN, f"the probe returned {type(ended.value).__name__}, not a Probed")
    return Probed(ended.value.answer, fitted(tool.clean(ended.value.output), output_bytes_max))


async def run_precondition(
    tool: Tool, context: CallContext, arguments_text: str, *, timeout_s: float
) -> tuple[bool | None, str]:
    """(whether the call may be made now, words); None when that is not known: it raised, hung or said neither."""
    precondition, arguments = tool.precondition, check_arguments(tool, arguments_text)
    if precondition is None or isinstance(arguments, str):
        return True, ""  # arguments that do not fit start nothing
    ended = await _bounded(lambda: precondition(context, arguments), timeout_s)
    if ended is None:
        return None, f"no answer within {timeout_s:g} s"
    if ended.error is not None:
        return None, f"it raised {_named(ended.error, tool.clean)}"
    if isinstance(ended.value, bool):
        return ended.value, ""
    if isinstance(ended.value, str):
        return False, _shown(tool.clean(_SURROGATES.sub("\ufffd", ended.value)))
    return None, f"it returned {type(ended.value).__name__}, neither a bool nor a text"


async def _bounded(call: Callable[[], Awaitable[Any]], timeout_s: float) -> _Ended | None:
    """How the call ended, None when it did not within the time.

    A task of its own, because a coroutine that catches its cancellation would hold up its caller for ever.
    """
    task = asyncio.create_task(_ending(call))
    try:
        await asyncio.wait({task}, timeout=timeout_s)
        if task.done():
            return task.result()
        return None
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=STOP_S)


async def _ending(call: Callable[[], Awaitable[Any]]) -> _Ended:
    try:
        return _Ended(value=await call())
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - sys.exit in a tool too is a result, and not ours to obey
        return _Ended(error=error)


def _judged(tool: Tool, ended: _Ended | None) -> tuple[ResultStatus, str]:
    if ended is None:
        return ResultStatus.TIMEOUT, f"no answer within {tool.timeout_s:g} s; whether it was done is not known"
    if ended.error is not None:
        status = _status(ended.error)
        return status, _told(status, ended.error, tool.clean)
    try:
        text = _text(ended.value)
    except Exception as error:  # noqa: BLE001 - what a tool returns may raise anything when it is read
        said = f"the tool returned {type(ended.value).__name__}, which is not JSON: {_named(error, tool.clean)}"
        return ResultStatus.ERROR, said
    return ResultStatus.OK, text


def _status(error: BaseException) -> ResultStatus:
    if isinstance(error, TimeoutError):
        return ResultStatus.TIMEOUT
    if isinstance(error, ToolOutcomeUnknown | asyncio.CancelledError):
        return ResultStatus.UNKNOWN
    return ResultStatus.EXPIRED if isinstance(error, ToolExpired) else ResultStatus.ERROR


def _told(status: ResultStatus, error: BaseException, clean: Callable[[str], str]) -> str:
    known = "" if status not in (ResultStatus.TIMEOUT, ResultStatus.UNKNOWN) else "; whether it was done is not known"
    return f"the tool raised {_named(error, clean)}{known}"


def _text(value: Any) -> str:
    """Text as it is, anything else as JSON. Raises whatever JSON cannot say."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is not JSON")


def fitted(text: str, output_bytes_max: int) -> str:
    """At most so many bytes of UTF-8, with a note of what was left out; never a lone surrogate."""
    if len(text) <= output_bytes_max:
        data = _SURROGATES.sub("\ufffd", text).encode()
        if len(data) <= output_bytes_max:
            return data.decode()
    note = f"\n[cut: the whole output has {len(text)} characters]"
    head = _SURROGATES.sub("\ufffd", text[:output_bytes_max]).encode()
    return cut_text(head, max(0, output_bytes_max - len(note))) + note[:output_bytes_max]


def _named(error: BaseException, clean: Callable[[str], str] = str) -> str:
    """The error's type and words; an error that cannot say its words is possible too."""
    try:
        words = str(error)
    except Exception as broken:  # noqa: BLE001 - whatever __str__ does
        words = f"(no words: {type(broken).__name__})"
    return f"{type(error).__name__}: {_shown(clean(words))}" if words else type(error).__name__


def _shown(text: str) -> str:
    return text if len(text) <= ERROR_CHARS_MAX else f"{text[:ERROR_CHARS_MAX]}..."


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)
