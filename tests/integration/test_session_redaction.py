"""A session under a policy: what happens live, after any crash and in a replay is one and the same redacted work."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.ledger import ledger
from tests.support.sessions import ScriptedModel, World, asks, kinds, says
from tracklog.infra.blobs import open_blobs
from tracklog.producers.models import ModelRequest
from tracklog.producers.replay import replay
from tracklog.producers.session import Session
from tracklog.producers.tools import ToolSet, tool
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InvalidTool
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.same_work import same_work
from tracklog.schemas.values import ResultStatus, Ruling


def secret(place: str) -> str:
    return f"sk-{place.ljust(24, 'x')}"


EMAIL = "ada@example.org"
PLACES = ("task", "prompt", "message", "step", "result", "error", "summary", "reply", "sent", "end")


@pytest.fixture
def new(tmp_path: Path) -> Iterator[Callable[[], World]]:
    """Makes worlds, each with a blob store of its own."""
    names = count()
    with ledger() as (_, url):
        yield lambda: World(url, open_blobs(str(tmp_path / str(next(names)))))


def tools(made: list[dict[str, str]]) -> ToolSet:
    @tool(effect="readonly")
    def look(what: str) -> dict[str, str]:
        made.append({"what": what})
        if what == "badly":
            raise ValueError(f"no {secret('error')}")
        return {"said": f"found {secret('result')}", "email": EMAIL}

    return ToolSet.of(look)


class Listening(ScriptedModel):
    """Keeps what it was shown."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.shown: list[str] = []

    async def reply(self, request: ModelRequest, **options: Any) -> Any:
        self.shown.append(json.dumps(request.messages))
        return await super().reply(request, **options)


def model() -> Listening:
    return Listening(
        asks(("c1", "look"), arguments='{"what":"well"}'),
        asks(("c2", "look"), arguments='{"what":"badly"}'),
        says(f"it is {secret('reply')}"),
    )


async def program(session: Session) -> None:
    """Says its own secrets again at every start, as programs do."""
    seen = await session.step("read", lambda: {"key": secret("step"), "email": EMAIL})
    said: list[Any] = [
        {"role": "system", "content": f"your key is {secret('prompt')}"},
        {"role": "user", "content": f"mine is {secret('message')}, and {json.dumps(seen)}"},
    ]
    for _ in range(3):
        await session.build_context(said)
        reply = await session.call_model()
        said.append(reply.message)
        said += [(await session.call_tool(call)).message for call in reply.tool_calls]

    async def summarize() -> str:
        return f"a summary of {secret('summary')}"

    await session.compact(1, 2, summarize)
    await session.send("bob", f"hello {secret('sent')}")
    await session.end({"key": secret("end")})


def changes(made: list[dict[str, str]], *fields: str) -> dict[str, Any]:
    return {
        "tools": tools(made),
        "redaction": Redaction(fields or ("email",)),
        "prompt": f"your key is {secret('prompt')}",
        "task": f"with {secret('task')}",
    }


def said_in(world: World, events: Sequence[Event]) -> str:
    """Everything that the log and the blob store hold."""
    texts = [repr(event.body) + repr(event.envelope.ext) for event in events]
    texts += [path.read_text() for path in Path(world.blobs.url).rglob("*") if path.is_file()]
    return "\n".join(texts)


async def test_no_secret_is_recorded_or_shown_to_the_model_and_without_a_policy_all_are(
    new: Callable[[], World],
) -> None:
    guarded, open_ = new(), new()
    shown = model()
    await guarded.run(shown, program, **changes([]))
    await open_.run(model(), program, **{**changes([]), "redaction": None})

    redacted, plain = said_in(guarded, guarded.events()), said_in(open_, open_.events())
    for place in PLACES:
        assert secret(place) in plain, "the test plants it"
        assert secret(place) not in redacted, place
        assert secret(place) not in "".join(shown.shown), place
    assert EMAIL in plain
    assert EMAIL not in redacted


async def test_after_a_crash_anywhere_it_goes_on_to_the_same_redacted_work(new: Callable[[], World]) -> None:
    whole = new()
    await whole.run(model(), program, **changes([]))
    appends = 0
    while True:
        world, made = new(), list[dict[str, str]]()
        world.die_at_append = appends
        died = await world.crash(model(), program, **changes(made))
        world.die_at_append = None
        if not died:
            break
        await world.run(model(), program, **changes(made))
        assert same_work(whole.events(), world.events()) is None, f"killed at append {appends}"
        appends += 1
    assert appends > 15


async def test_a_strict_replay_under_the_policy_is_clean_and_without_it_is_not(new: Callable[[], World]) -> None:
    world = new()
    await world.run(model(), program, **changes([]))

    again = await replay(world.events(), program, setup=world.setup(model(), **changes([])))
    assert (again.clean, again.divergence) == (True, None)
    without = {**changes([]), "redaction": None}
    assert (await replay(world.events(), program, setup=world.setup(model(), **without))).divergence is not None


@pytest.mark.parametrize(
    "arguments",
    [json.dumps({"what": secret("given")}), '{"what":"[API key redacted]"}', '{"what":"x","email":"ada@example.org"}'],
)
async def test_a_call_that_would_need_a_secret_is_not_made_and_the_model_hears_why(
    new: Callable[[], World], arguments: str
) -> None:
    world, made = new(), list[dict[str, str]]()
    asked = ScriptedModel(asks(("c1", "look"), arguments=arguments), says("I see"))
    await world.run(asked, **changes(made))

    assert made == []
    (ruled,) = world.bodies(ev.Authorized)
    (result,) = world.bodies(ev.ToolResult)
    assert (ruled.ruling, result.status) == (Ruling.DENY, ResultStatus.ERROR)
    assert "look the secret up by a name" in result.output.text
    assert "ToolIntent" not in kinds(world.events())
    assert secret("given") not in said_in(world, world.events())


async def test_a_long_output_is_looked_through_before_it_is_cut(new: Callable[[], World]) -> None:
    key = secret("cut")
    world = new()

    @tool(effect="readonly")
    def look(what: str) -> str:
        return "x " * 495 + key + " y" * 1000

    asked = ScriptedModel(asks(("c1", "look")), says("I see"))
    await world.run(asked, **{**changes([]), "tools": ToolSet.of(look)}, output_bytes_max=1000)

    (result,) = world.bodies(ev.ToolResult)
    assert result.output.stored
    assert "sk-" not in said_in(world, world.events()), "not even its beginning"


async def test_a_tool_whose_definition_holds_a_secret_is_refused(new: Callable[[], World]) -> None:
    @tool(effect="readonly", name="look")
    def look(what: str) -> str:
        """Looks with sk-abcdefghijklmnopqrstuvwx."""
        raise AssertionError("not reached")

    world = new()
    with pytest.raises(InvalidTool, match="look"):
        await world.run(ScriptedModel(says("no")), **{**changes([]), "tools": ToolSet.of(look)})
    assert world.events() == []
