"""A function's signature as the schema of a tool, and calls of the function with arguments that fit it."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from tracklog.producers.tool_thread import in_thread
from tracklog.schemas.errors import InvalidTool

__all__ = ["Signature"]

Function = Callable[..., Any]
Call = Callable[[Any, Mapping[str, Any]], Awaitable[Any]]
Parameters = Mapping[str, inspect.Parameter]

PROBLEMS_MAX: Final = 5
"""Misfits named to the model at once."""
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_CONFIG: Final = ConfigDict(extra="forbid", strict=True)


class _Schema(GenerateJsonSchema):
    """Without titles, which only repeat the names, and silent about defaults that JSON cannot say."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - declared so upstream

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@dataclass(frozen=True)
class Signature:
    """What a tool takes from its function. `fields` are the names of its arguments, in order."""

    name: str
    description: str
    schema: Mapping[str, Any]
    fields: tuple[str, ...]
    call: Call
    _model: type[BaseModel]

    @classmethod
    def of(cls, function: Function, context_type: type) -> Signature:
        """Raises InvalidTool for parameters without types, or that JSON cannot be made into."""
        name = _name(function)
        parameters = _parameters(name, function)
        context = _context_names(parameters, context_type)
        fields = tuple(one for one in parameters if one not in context)
        model = _model(name, {one: parameters[one] for one in fields})
        return cls(
            name=name,
            description=inspect.getdoc(function) or "",
            schema=_schema(name, model),
            fields=fields,
            call=_caller(function, model, fields, fields, context),
            _model=model,
        )

    def asked_of(self, probe: Function, context_type: type, what: str = "probe") -> Call:
        """The probe (or `what` it is) as it is called: with the tool's arguments that it names. Raises InvalidTool."""
        parameters = _parameters(_name(probe), probe)
        context = _context_names(parameters, context_type)
        wanted = [one for one in parameters if one not in context]
        strange = ", ".join(one for one in wanted if one not in self.fields)
        if strange:
            raise InvalidTool(
                f"the {what} of tool {self.name!r} asks for {strange}",
                hint=f"a {what} is given the arguments of its tool, by name, and the CallContext",
            )
        return _caller(probe, self._model, self.fields, wanted, context)

    def problem(self, arguments: Mapping[str, Any]) -> str:
        """What does not fit, "" for nothing. Strict: "3" is no integer."""
        try:
            _fitted(self._model, arguments)
        except ValidationError as error:
            return "; ".join(_words(error))
        return ""


def _name(function: Function) -> str:
    if not callable(function):
        raise InvalidTool(f"a tool is made of a function, not of {function!r}")
    if isinstance(function, partial):
        return _name(function.func)
    return getattr(function, "__name__", type(function).__name__)


def _parameters(name: str, function: Function) -> Parameters:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidTool(f"tool {name!r} is a generator", hint="return the whole output")
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (NameError, SyntaxError, TypeError, ValueError) as error:
        raise InvalidTool(
            f"the types of tool {name!r} cannot be read: {error}",
            hint="they must be known at the top of its module, also at run time",
        ) from error
    for one in parameters.values():
        if one.kind not in _BY_NAME:
            raise InvalidTool(f"parameter {one.name!r} of tool {name!r} has no name to be given by", hint="name it")
        if one.annotation is inspect.Parameter.empty:
            raise InvalidTool(f"parameter {one.name!r} of tool {name!r} has no type", hint="annotate it")
    return parameters


def _context_names(parameters: Parameters, context_type: type) -> frozenset[str]:
    def is_context(annotation: Any) -> bool:
        return annotation is context_type or context_type in typing.get_args(annotation)

    return frozenset(one.name for one in parameters.values() if is_context(one.annotation))


def _model(name: str, parameters: Parameters) -> type[BaseModel]:
    """Fields are numbered and known by alias, so that a parameter may have any name."""
    fields: dict[str, Any] = {}
    for number, one in enumerate(parameters.values()):
        default = ... if one.default is inspect.Parameter.empty else one.default
        fields[f"a{number}"] = (one.annotation, Field(default, alias=one.name))
    try:
        return create_model(name, __config__=_CONFIG, **fields)
    except (PydanticUserError, TypeError) as error:
        raise InvalidTool(f"tool {name!r} has a parameter of no use: {error}", hint="use types of JSON") from error


def _schema(name: str, model: type[BaseModel]) -> dict[str, Any]:
    try:
        schema = model.model_json_schema(schema_generator=_Schema)
    except PydanticUserError as error:
        raise InvalidTool(f"tool {name!r} has a parameter without a JSON schema: {error}") from error
    return {key: value for key, value in schema.items() if key != "title"}


def _fitted(model: type[BaseModel], arguments: Mapping[str, Any]) -> BaseModel:
    """By way of JSON: strict, and still with dates, enums and tuples, which JSON has under other forms."""
    return model.model_validate_json(json.dumps(arguments))


def _caller(
    function: Function,
    model: type[BaseModel],
    fields: tuple[str, ...],
    wanted: typing.Iterable[str],
    context_names: frozenset[str],
) -> Call:
    picked = {name: f"a{fields.index(name)}" for name in wanted}
    is_async = _is_async(function)

    async def call(context: Any, arguments: Mapping[str, Any]) -> Any:
        values = _fitted(model, arguments)
        given = {name: getattr(values, field) for name, field in picked.items()}
        bound = partial(function, **given, **dict.fromkeys(context_names, context))
        return await bound() if is_async else await in_thread(bound)

    setattr(call, "__wrapped__", function)  # noqa: B010 - whoever shows the tool to a framework reads its signature
    return call


def _is_async(function: Function) -> bool:
    own_call = getattr(type(function), "__call__", None)  # noqa: B004 - its kind is asked, not whether it is there
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(own_call)


def _words(error: ValidationError) -> Iterator[str]:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    for one in problems[:PROBLEMS_MAX]:
        where = ".".join(str(part) for part in one["loc"])
        yield f"{where}: {one['msg']}" if where else one["msg"]
    if len(problems) > PROBLEMS_MAX:
        yield f"and {len(problems) - PROBLEMS_MAX} more"
