"""The probe of docs/models-and-tools.md is one as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tracklog.producers.tool_run import run_probe
from tracklog.producers.tools import CallContext, ProbeAnswer, Probed, Tool
from tracklog.schemas.values import Effect

PAGE = Path(__file__).parents[2] / "docs" / "models-and-tools.md"
CONTEXT = CallContext("trip-1", "c1", idempotency_key="key-1", epoch=1, attempt=1, deadline_us=1)


class Airline:
    """What the page calls `airline`: a service that can be asked for what it has done, while it is there."""

    def __init__(self) -> None:
        self.booked: dict[str, str] = {}
        self.is_there = True

    def book(self, flight: str, reference: str) -> str:
        self.booked[reference] = f"{flight}, seat 3A"
        return self.booked[reference]

    def find(self, reference: str) -> str | None:
        if not self.is_there:
            raise ConnectionError("nobody answers")
        return self.booked.get(reference)


@pytest.mark.parametrize(
    ("is_booked", "is_there", "expected"),
    [
        (True, True, (ProbeAnswer.HAPPENED, "TL100, seat 3A")),
        (False, True, (ProbeAnswer.ABSENT, "")),
        (True, False, (ProbeAnswer.UNKNOWN, "the probe raised ConnectionError: nobody answers")),
    ],
)
async def test_the_probe_of_the_page_says_what_became_of_a_call(
    is_booked: bool, is_there: bool, expected: tuple[ProbeAnswer, str]
) -> None:
    found = re.search(r"```python\n(from [^`]*effect=\"probe\"[^`]*)```", PAGE.read_text(encoding="utf-8"))
    assert found is not None
    airline = Airline()
    names: dict[str, Any] = {"airline": airline}
    exec(compile(found.group(1), str(PAGE), "exec"), names)
    book: Tool = names["book"]
    if is_booked:
        await book.call(CONTEXT, {"flight": "TL100"})
    airline.is_there = is_there

    said: Probed = await run_probe(book, CONTEXT, '{"flight":"TL100"}', output_bytes_max=1000)

    assert (book.effect, said.answer, said.output) == (Effect.PROBE, *expected)
