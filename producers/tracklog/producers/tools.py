"""Tools: what an agent may do, and what doing it twice would mean.

A tool states its effect class (DESIGN §8), and a session acts by it when nobody knows whether a call happened:

    readonly     no effect                                              run again
    local        changes the trajectory's own workspace only            performed again, in order
    idempotent   honours the idempotency key for `key_ttl_s`            re-issued while the key surely lives
    probe        a read tells whether it happened                       probed
    opaque       none of these: what a tool is that declares nothing    a person is asked

A tool is never run but through a session, which writes the intent first: calling one directly raises.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, overload

import orjson

from tracklog.producers.tool_schema import check_schema, schema_problem
from tracklog.producers.tool_signature import Signature
from tracklog.schemas.errors import InvalidTool, ToolOutsideSession
from tracklog.schemas.values import Effect

__all__ = [
    "TIMEOUT_S",
    "CallContext",
    "ProbeAnswer",
    "Probed",
    "Tool",
    "ToolSet",
    "declared_effect",
    "is_tool_name",
    "tool",
]

TIMEOUT_S: Final = 60.0
"""How long a call may take when its tool does not say."""
VERSION_HEX: Final = 16
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every model endpoint takes as the name of a tool."""


@dataclass(frozen=True, slots=True)
class CallContext:
    """What every call is given beside its arguments.

    `deadline_us` is in microseconds since 1970 UTC, `attempt` 1 is the first, `workspace` the trajectory's own
    directory when it has one. A tool that keeps `idempotency_key`, or
    refuses calls past the deadline or with a lower epoch or attempt than it has seen, closes the gaps that nobody
    can close without its help.
    """

    trajectory_id: str
    call_id: str
    idempotency_key: str
    epoch: int
    attempt: int
    deadline_us: int
    workspace: Path | None = None


class ProbeAnswer(StrEnum):
    HAPPENED = "happened"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Probed:
    """What a probe found. `output`: what the call gave when it happened, else words for people."""

    answer: ProbeAnswer
    output: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError and TypeError, so that a probe that says something else has not answered."""
        object.__setattr__(self, "answer", ProbeAnswer(self.answer))
        if not isinstance(self.output, str):
            raise TypeError("the output of a Probed is a text")


Call = Callable[[CallContext, Mapping[str, Any]], Awaitable[Any]]
Probe = Callable[[CallContext, Mapping[str, Any]], Awaitable[Probed]]
Precondition = Callable[[CallContext, Mapping[str, Any]], Awaitable[bool | str]]
Check = Callable[[Mapping[str, Any]], str]
Run = Literal["auto", "inline", "dispatch"]


@dataclass(frozen=True, eq=False)
class Tool:
    """One tool. `schema` is the JSON schema of its arguments, an object.

    `version` names what callers rely on: name, schema, effect. `key_ttl_s`: how long the tool remembers an
    idempotency key. `check` says what does not fit in arguments, "" for nothing; without it `schema` is the check.

    `precondition` is asked right before each send: True lets it go, False or a text (why not) does not.

    `run` says where its calls are performed: `inline` in the agent's process, `dispatch` by a dispatcher, `auto` by one
    where agents have one (Setup.dispatches) and the tool is `remote` or opaque. A dispatcher keeps to `calls_max` at
    once in a process, `starts_per_s`, and one call at a time in a trajectory for a tool that is `serial`.
    Raises InvalidTool for what cannot be kept to: a class without what settles it, a schema that is none.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    call: Call = field(repr=False)
    effect: Effect = Effect.OPAQUE
    timeout_s: float = TIMEOUT_S
    key_ttl_s: float | None = None
    probe: Probe | None = field(default=None, repr=False)
    precondition: Precondition | None = field(default=None, repr=False)
    check: Check | None = field(default=None, repr=False)
    run: Run = "auto"
    remote: bool = False
    serial: bool = False
    calls_max: int | None = None
    starts_per_s: float | None = None
    clean: Callable[[str], str] = field(default=str, repr=False)
    """What is left of its outputs and errors, before they are cut to size."""
    version: str = field(init=False)

    def __post_init__(self) -> None:
        if not is_tool_name(self.name):
            raise InvalidTool(f"{self.name!r} is no name for a tool", hint="1 to 64 of A-Z a-z 0-9 _ -")
        object.__setattr__(self, "effect", declared_effect(self.name, self.effect))
        _check_settling(self)
        _check_run(self)
        if self.check is None:
            check_schema(self.name, self.schema)
        object.__setattr__(self, "version", _version(self))

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Raises ToolOutsideSession: a call that is not recorded first could happen twice in silence."""
        raise ToolOutsideSession(
            f"tool {self.name!r} was called directly",
            hint="call it through a session: session.call_tool(call), or session.bind(tool) for frameworks",
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Frameworks look at the function that they are given; a Tool is none."""
            raise AttributeError(
                f"tool {self.__dict__.get('name')!r} has no {name!r}: give frameworks session.bind(tool)"
            )

    def problem(self, arguments: Mapping[str, Any]) -> str:
        """What does not fit in the arguments, "" for nothing."""
        return self.check(arguments) if self.check is not None else schema_problem(self.schema, arguments)

    def dispatched(self, dispatches: bool) -> bool:
        """Whether a dispatcher performs its calls, for agents that have one or not."""
        if self.run != "auto" or self.effect is Effect.LOCAL:
            return self.run == "dispatch"
        return dispatches and (self.remote or self.effect is Effect.OPAQUE)

    @property
    def definition(self) -> dict[str, Any]:
        """As models are told of it, in the chat-completions form."""
        function = {"name": self.name, "description": self.description, "parameters": self.schema}
        return {"type": "function", "function": function}


class ToolSet:
    """The tools of an agent, by name."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = dict(sorted(tools.items()))

    @classmethod
    def of(cls, *tools: Tool) -> ToolSet:
        """Raises InvalidTool when two have one name."""
        by_name: dict[str, Tool] = {}
        for one in tools:
            if by_name.setdefault(one.name, one) is not one:
                raise InvalidTool(f"two tools are called {one.name!r}", hint="give one of them another name=")
        return cls(by_name)

    def get(self, name: str) -> Tool | None:
        """None for a tool that is not among them: models make names up."""
        return self._tools.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    @property
    def definitions(self) -> tuple[dict[str, Any], ...]:
        """What a model is told, sorted by name."""
        return tuple(one.definition for one in self)

    def cleaned(self, clean: Callable[[str], str]) -> ToolSet:
        """The same tools, of whose outputs and errors only what `clean` leaves is seen."""
        return ToolSet({one.name: replace(one, clean=clean) for one in self})

    def schemas_json(self) -> str:
        """The definitions as canonical JSON: one set of tools has one text, whatever order it was given in."""
        return _canonical(self.definitions).decode()

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)


Function = Callable[..., Any]


@overload
def tool(fn: Function) -> Tool: ...


@overload
def tool(
    fn: None = None,
    *,
    effect: str = ...,
    timeout_s: float = ...,
    key_ttl_s: float | None = ...,
    probe: Function | None = ...,
    precondition: Function | None = ...,
    name: str | None = ...,
    run: Run = ...,
    serial: bool = ...,
    calls_max: int | None = ...,
    starts_per_s: float | None = ...,
) -> Callable[[Function], Tool]: ...


def tool(
    fn: Function | None = None,
    *,
    effect: str = Effect.OPAQUE,
    timeout_s: float = TIMEOUT_S,
    key_ttl_s: float | None = None,
    probe: Function | None = None,
    precondition: Function | None = None,
    name: str | None = None,
    run: Run = "auto",
    serial: bool = False,
    calls_max: int | None = None,
    starts_per_s: float | None = None,
) -> Tool | Callable[[Function], Tool]:
    """Makes a tool of a typed function, sync (run in a thread of its own) or async.

    The schema comes from the signature, the description from the docstring. A parameter annotated CallContext is
    given the call's context and is not part of the schema. `probe` is a function over parameters of the same names
    (as many as it needs) that returns a Probed, `precondition` one that returns whether the call may be made now: True,
    or else False or words for the model. It only reads, and is asked right before each send.
    Raises InvalidTool for a signature without types, and as Tool does.
    """

    def declare(function: Function) -> Tool:
        signature = Signature.of(function, CallContext)
        named = name if name is not None else signature.name
        return Tool(
            name=named,
            description=signature.description,
            schema=signature.schema,
            call=signature.call,
            effect=declared_effect(named, effect),
            timeout_s=timeout_s,
            key_ttl_s=key_ttl_s,
            probe=None if probe is None else signature.asked_of(probe, CallContext),
            precondition=_asked(signature, precondition),
            check=signature.problem,
            run=run,
            serial=serial,
            calls_max=calls_max,
            starts_per_s=starts_per_s,
        )

    return declare if fn is None else declare(fn)


def _asked(signature: Signature, precondition: Function | None) -> Precondition | None:
    return None if precondition is None else signature.asked_of(precondition, CallContext, "precondition")


def is_tool_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def declared_effect(name: str, effect: str) -> Effect:
    """The effect class of a tool by its word. Raises InvalidTool, naming the tool."""
    if effect not in set(Effect):
        known = ", ".join(sorted(Effect))
        raise InvalidTool(f"tool {name!r} declares the effect {effect!r}", hint=f"one of {known}")
    return Effect(effect)


def _check_settling(one: Tool) -> None:
    if not (math.isfinite(one.timeout_s) and one.timeout_s > 0):
        raise InvalidTool(f"tool {one.name!r} has a timeout_s of {one.timeout_s}", hint="seconds, above 0")
    if one.key_ttl_s is not None and not (math.isfinite(one.key_ttl_s) and one.key_ttl_s > 0):
        raise InvalidTool(f"tool {one.name!r} has a key_ttl_s of {one.key_ttl_s}", hint="seconds, above 0")
    if one.effect is Effect.IDEMPOTENT and one.key_ttl_s is None:
        raise InvalidTool(
            f"tool {one.name!r} is idempotent and does not say for how long",
            hint="key_ttl_s: the seconds for which it surely remembers an idempotency key",
        )
    if one.effect is Effect.PROBE and one.probe is None:
        raise InvalidTool(f"tool {one.name!r} has the effect probe and no probe", hint="give probe=, or opaque")
    if one.precondition is not None and one.effect is Effect.LOCAL:
        raise InvalidTool(
            f"tool {one.name!r} is local and has a precondition",
            hint="local calls are performed again from a checkpoint, whatever holds then: check inside the tool",
        )


def _check_run(one: Tool) -> None:
    if one.run not in ("auto", "inline", "dispatch"):
        raise InvalidTool(f"tool {one.name!r} has run={one.run!r}", hint="one of auto, inline, dispatch")
    if one.run == "dispatch" and one.effect is Effect.LOCAL:
        raise InvalidTool(
            f"tool {one.name!r} is local and to be dispatched",
            hint="a workspace is where its agent runs: leave run= away, or declare what the tool does elsewhere",
        )
    if one.calls_max is not None and one.calls_max < 1:
        raise InvalidTool(f"tool {one.name!r} has calls_max={one.calls_max}", hint="1 or more")
    if one.starts_per_s is not None and not (math.isfinite(one.starts_per_s) and one.starts_per_s > 0):
        raise InvalidTool(f"tool {one.name!r} has starts_per_s={one.starts_per_s}", hint="above 0")


def _version(one: Tool) -> str:
    try:
        seen = _canonical([one.name, one.schema, one.effect])
    except TypeError as error:
        raise InvalidTool(f"the schema of tool {one.name!r} is not JSON: {error}") from None
    return hashlib.sha256(seen).hexdigest()[:VERSION_HEX]


def _canonical(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
