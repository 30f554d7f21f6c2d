"""Typed functions as tools: the schema models see, and what the function is given."""

from __future__ import annotations

import datetime
import enum
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from tracklog.producers.tools import CallContext, ProbeAnswer, Probed, Tool, tool
from tracklog.schemas.errors import InvalidTool

CONTEXT = CallContext("t", "c1", "key-1", epoch=1, attempt=1, deadline_us=2**62)


class Seat(enum.Enum):
    AISLE = "aisle"
    WINDOW = "window"


class Passenger(BaseModel):
    name: str
    born: datetime.date | None = None


@tool(effect="readonly")
async def book(
    flight: Annotated[str, Field(description="Its number", pattern="^[A-Z]+[0-9]+$")],
    passengers: list[Passenger],
    seat: Seat = Seat.AISLE,
    bags: Annotated[int, Field(ge=0)] = 0,
    *,
    context: CallContext,
) -> Any:
    """Books a flight.

    For all passengers, or for none.
    """
    return [flight, [one.name for one in passengers], seat, bags, context.idempotency_key]


def test_the_schema_and_the_words_come_from_the_function() -> None:
    assert book.description == "Books a flight.\n\nFor all passengers, or for none."
    assert book.schema["required"] == ["flight", "passengers"]
    assert book.schema["additionalProperties"] is False
    assert list(book.schema["properties"]) == ["flight", "passengers", "seat", "bags"]
    flight = {"type": "string", "description": "Its number", "pattern": "^[A-Z]+[0-9]+$"}
    assert book.schema["properties"]["flight"] == flight
    assert book.schema["properties"]["bags"] == {"type": "integer", "minimum": 0, "default": 0}


async def test_the_function_is_given_typed_values_defaults_and_the_context() -> None:
    people = [{"name": "A", "born": "2001-02-03"}, {"name": "B"}]

    got = await book.call(CONTEXT, {"flight": "AB12", "passengers": people, "seat": "window"})

    assert got == ["AB12", ["A", "B"], Seat.WINDOW, 0, "key-1"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "flight: Field required"),
        ({"flight": "AB12", "passengers": [], "meal": "fish"}, "meal"),
        ({"flight": "ab", "passengers": []}, "flight"),
        ({"flight": "AB12", "passengers": [{"name": 3}]}, "passengers.0.name"),
        ({"flight": "AB12", "passengers": [{"name": "A", "born": "soon"}]}, "passengers.0.born"),
        ({"flight": "AB12", "passengers": [], "bags": "3"}, "bags"),
        ({"flight": "AB12", "passengers": [], "bags": -1}, "bags"),
        ({"flight": "AB12", "passengers": [], "bags": True}, "bags"),
        ({"flight": "AB12", "passengers": [], "seat": "roof"}, "seat"),
        ({"flight": "AB12", "passengers": [], "context": {}}, "context"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: dict[str, Any], words: str) -> None:
    assert words in book.problem(arguments)


def test_many_misfits_are_named_in_few_words() -> None:
    people = [{"name": number} for number in range(9)]

    problem = book.problem({"flight": "AB12", "passengers": people})

    assert problem.endswith("and 4 more")


@pytest.mark.parametrize("name", ["schema", "json", "copy", "_hidden", "model_config", "self", "a0", "class_"])
async def test_a_parameter_may_have_any_name(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def echo({name}: int): return {name}", scope)

    echo = tool(scope["echo"])

    assert list(echo.schema["properties"]) == [name]
    assert await echo.call(CONTEXT, {name: 3}) == 3


class Counter:
    def __init__(self) -> None:
        self.total = 0

    def add(self, number: int) -> int:
        self.total += number
        return self.total

    async def __call__(self, number: int) -> int:
        return self.add(number)


async def test_methods_callable_objects_and_partials_are_functions_too() -> None:
    counter = Counter()

    assert await tool(counter.add).call(CONTEXT, {"number": 2}) == 2
    assert await tool(name="count")(counter).call(CONTEXT, {"number": 2}) == 4
    assert await tool(partial(counter.add)).call(CONTEXT, {"number": 2}) == 6


async def test_integers_of_any_size_reach_the_function() -> None:
    @tool
    def echo(number: int) -> int:
        return number

    assert await echo.call(CONTEXT, {"number": 10**40}) == 10**40


async def test_each_call_has_a_default_of_its_own() -> None:
    @tool
    def add(one: str, to: list[str] = []) -> list[str]:  # noqa: B006 - the very mistake
        to.append(one)
        return to

    assert await add.call(CONTEXT, {"one": "a"}) == ["a"]
    assert await add.call(CONTEXT, {"one": "b"}) == ["b"]


def untyped(number) -> None:  # type: ignore[no-untyped-def]
    ...


def many(*numbers: int) -> None: ...


def named(**numbers: int) -> None: ...


def by_position(number: int, /) -> None: ...


def of_a_type_nobody_knows(number: Unknown) -> None:  # type: ignore[name-defined]  # noqa: F821
    ...


def of_a_type_without_json(callback: Callable[[], None]) -> None: ...


def of_a_type_without_a_check(counter: Counter) -> None: ...


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    "function",
    [
        *(untyped, many, named, by_position, of_a_type_nobody_knows, of_a_type_without_json),
        *(of_a_type_without_a_check, generator, async_generator, 3, len),
    ],
)
def test_a_function_that_makes_no_schema_is_refused_when_it_is_declared(function: Any) -> None:
    with pytest.raises(InvalidTool):
        tool(function)


def charged(answer: Literal["happened", "absent"]) -> Tool:
    async def found(context: CallContext, order: str, note: str) -> Probed:
        return Probed(ProbeAnswer(answer), f"{order} {note} {context.call_id}")

    @tool(effect="probe", probe=found)
    def charge(order: str, cents: int, note: str = "-") -> None: ...

    return charge


async def test_a_probe_is_given_the_arguments_that_it_names() -> None:
    probe = charged("absent").probe

    assert probe is not None
    assert await probe(CONTEXT, {"order": "o7", "cents": 3}) == Probed(ProbeAnswer.ABSENT, "o7 - c1")


def test_a_probe_that_asks_for_what_its_tool_has_not_is_refused() -> None:
    def found(invoice: str) -> Probed:
        return Probed(ProbeAnswer.ABSENT)

    with pytest.raises(InvalidTool, match="invoice"):

        @tool(effect="probe", probe=found)
        def charge(order: str) -> None: ...
