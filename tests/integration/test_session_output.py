"""Long outputs: the model is given the beginning, the blob store has everything."""

from __future__ import annotations

from tests.support.sessions import ScriptedModel, World, asks, new_world, says
from tracklog.producers.bodies import whole_text
from tracklog.producers.tools import ToolSet, tool
from tracklog.schemas.events import ToolResult

LONG = "line of a log\n" * 10_000
LIMIT_BYTES = 1000


@tool(effect="readonly")
def flood() -> str:
    return LONG


async def flooded() -> tuple[World, ToolResult]:
    world = new_world("")
    model = ScriptedModel(asks(("c1", "flood"), arguments="{}"), says("done"))
    await world.run(model, tools=ToolSet.of(flood), output_bytes_max=LIMIT_BYTES)
    (result,) = world.bodies(ToolResult)
    return world, result


async def test_a_long_output_is_given_cut_and_stored_whole() -> None:
    world, result = await flooded()

    assert len(result.output.text.encode()) <= LIMIT_BYTES
    assert f"the whole output has {len(LONG)} characters" in result.output.text
    assert result.output.stored
    assert whole_text(result.output, world.blobs) == LONG


async def test_a_run_with_a_long_output_goes_on_from_what_was_given() -> None:
    world, _ = await flooded()
    before = len(world.events())

    model = ScriptedModel()
    await world.run(model, tools=ToolSet.of(flood), output_bytes_max=LIMIT_BYTES)

    assert len(world.events()) == before
    assert not model.asked
