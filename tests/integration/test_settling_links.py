"""Links to escalations: a page that anybody may open, by which an operator says what became of a call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from tests.integration.test_answers import open_page
from tests.support.serving import Api, serving, token
from tests.support.sessions import PAST_GRACE_S, TRAJECTORY, ScriptedModel, asks, says
from tracklog.consumers.webhooks.message import message_of
from tracklog.processors.agenda import DOUBTED
from tracklog.schemas import events as ev
from tracklog.schemas.errors import PersonNeeded
from tracklog.schemas.values import ResultStatus

OPERATOR = token("operator")


@pytest.fixture
def api(redis_db: str, tmp_path: Path) -> Iterator[Api]:
    with serving(redis_db, tmp_path) as served:
        yield served


async def doubted(api: Api) -> tuple[str, ScriptedModel]:
    """The path of the link in the message about a call of a process that died after the effect, and its model."""
    model = ScriptedModel(asks(("c1", "opaque")), says("done"))
    api.world.die_at_point = "after the effect"
    assert await api.world.crash(model)
    api.world.die_at_point = None
    api.world.clock.advance(PAST_GRACE_S)
    with pytest.raises(PersonNeeded):
        await api.world.run(model)
    api.fold()
    (waiting,) = (await api.services.reader.waiting(DOUBTED, limit=10)).value.rows
    told = orjson.loads(message_of(waiting, "https://tracklog.example/").body)["data"]["answer_url"]
    return told.removeprefix("https://tracklog.example"), model


async def test_looking_decides_nothing_and_an_operator_says_what_became_of_it(api: Api) -> None:
    path, model = await doubted(api)
    for query, status in (("", 200), ("?do=happened", 422)):
        for _ in range(20):
            page = open_page(api, path + query, Authorization=f"Bearer {OPERATOR}")
            assert (page.status, page.headers["content-type"][:9]) == (status, "text/html")
    assert "opaque" not in open_page(api, path).text
    with pytest.raises(PersonNeeded):
        await api.world.run(model)
    # when an operator looks, and says that it happened
    seen = open_page(api, path, {"do": "look", "token": OPERATOR})
    assert (seen.status, "opaque(" in seen.text, "an intent without an outcome" in seen.text) == (200, True, True)
    said = open_page(api, path, {"do": "happened", "token": OPERATOR, "output": "it is", "reason": "in their list"})
    assert said.status == 202
    await api.world.run(model)
    # then the record has it as theirs, and the link says nothing more
    (result,) = [event for event in api.world.events() if isinstance(event.body, ev.ToolResult)]
    assert isinstance(result.body, ev.ToolResult)
    assert (result.body.status, result.body.output.text) == (ResultStatus.OK, "it is")
    assert (result.envelope.ext["by"], result.envelope.ext["reason"]) == ("operator", "in their list")
    assert open_page(api, path, {"do": "did_not_happen", "token": OPERATOR}).status == 409


async def test_what_may_not_be_said_is_refused_on_a_page_and_changes_nothing(api: Api) -> None:
    path, model = await doubted(api)
    good, other = {"do": "happened", "token": OPERATOR}, path[:-64] + "0" * 64
    for where, form, status in (
        (path, {"do": "happened"}, 401),
        (path, {"do": "happened", "token": token("approver")}, 403),
        (path, {"do": "look", "token": token("viewer")}, 403),
        (path, {"do": "happened", "token": token("stranger-operator")}, 404),
        (other, good, 409),
        (other, {**good, "do": "retry"}, 409),
        (other, {**good, "do": "look"}, 409),
        (path.replace("/c1/", "/c9/"), good, 409),
        (path, {**good, "do": "approve"}, 422),
        (path, {**good, "do": "retry", "output": "x"}, 422),
        (path[:-1], good, 422),
        (path, {**good, "reason": "x" * 70_000}, 413),
    ):
        page = open_page(api, where, form)
        assert page.status == status, (where, form, page.text)
        assert page.headers["content-type"].startswith("text/html")
        assert OPERATOR not in page.text
    assert api.world.bodies(ev.ToolResult) == []
    with pytest.raises(PersonNeeded):
        await api.world.run(model)


async def test_a_damaged_link_is_a_page_for_whoever_opens_it(api: Api) -> None:
    for path in (
        f"/answers/{TRAJECTORY}/call-1/{'0' * 63}",
        f"/answers/{TRAJECTORY}/call-1/{'Z' * 64}",
        f"/answers/{TRAJECTORY}/call-1",
        f"/answers/{TRAJECTORY}/call-1/{'0' * 64}/more",
        f"/answers/{TRAJECTORY}/call-1/{'0' * 64}?utm_source=mail",
        f"/escalations/{TRAJECTORY}/call-1/{'0' * 63}",
        f"/escalations/{TRAJECTORY}",
    ):
        page = open_page(api, path)
        assert page.status in (404, 422), path
        assert page.headers["content-type"].startswith("text/html"), path
        assert "Nothing was decided" in page.text
    # and what programs ask for stays JSON
    assert open_page(api, "/approvals/none").headers["content-type"] == "application/json"
