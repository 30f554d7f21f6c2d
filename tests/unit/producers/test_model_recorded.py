"""A recorded run as a model: by its contexts, or by the order of its replies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.importing import chat_record, chat_run, events_of_plan, recorded_objects
from tracklog.infra.blobs import open_blobs
from tracklog.producers.bodies import body_of
from tracklog.producers.data import shipped_runs
from tracklog.producers.importers.run import Run
from tracklog.producers.model_recorded import RecordedModel
from tracklog.producers.models import ModelAnswer, ModelRequest, with_call_ids
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError, RecordingEnded
from tracklog.schemas.values import Usage

MESSAGES: list[dict[str, Any]] = chat_record()["messages"]
BEFORE_FIRST, BEFORE_SECOND = tuple(MESSAGES[:2]), tuple(MESSAGES[:4])
SHIPPED = 10
FIRST, SECOND = MESSAGES[2], MESSAGES[4]


@pytest.fixture
def events(tmp_path: Path) -> list[Event]:
    return events_of_plan(chat_run(), open_blobs(str(tmp_path)))


def answers(*texts: str) -> list[ModelAnswer]:
    return [ModelAnswer(message={"role": "assistant", "content": text}) for text in texts]


def asking(*messages: dict[str, Any], replies_before: int | None = None) -> ModelRequest:
    return ModelRequest(messages=messages, replies_before=replies_before)


async def test_answers_given_in_order_come_in_order_and_then_it_says_that_there_are_no_more() -> None:
    model = RecordedModel(answers("a", "b"))

    got = [(await model.reply(asking())).message["content"] for _ in range(2)]

    assert got == ["a", "b"]
    with pytest.raises(RecordingEnded, match=r"has 2 replies; number 3"):
        await model.reply(asking())


async def test_a_request_that_says_how_many_replies_came_before_is_answered_by_it() -> None:
    """So a run that is resumed in another process goes on with the next reply, not with the first."""
    model = RecordedModel(answers("a", "b", "c"))

    got = [(await model.reply(asking(replies_before=n))).message["content"] for n in (1, 0, 2)]

    assert got == ["b", "a", "c"]
    with pytest.raises(RecordingEnded):
        await model.reply(asking(replies_before=3))


async def test_an_imported_run_answers_the_contexts_that_it_saw_in_any_order(events: list[Event]) -> None:
    model = RecordedModel.of(events)

    second = await model.reply(asking(*BEFORE_SECOND))
    first = await model.reply(asking(*BEFORE_FIRST))

    assert (first.message, second.message) == (FIRST, SECOND)
    assert [(one.call_id, one.tool) for one in first.tool_calls] == [("c1", "find")]
    assert with_call_ids(first.message, first.tool_calls) == FIRST


async def test_the_order_of_a_message_s_keys_does_not_matter(events: list[Event]) -> None:
    turned = tuple(dict(reversed(one.items())) for one in BEFORE_SECOND)

    assert (await RecordedModel.of(events).reply(asking(*turned))).message == SECOND


@pytest.mark.parametrize(
    "messages",
    [
        (),
        BEFORE_FIRST[:1],
        tuple(reversed(BEFORE_FIRST)),
        (BEFORE_FIRST[0], {"role": "user", "content": "find it!"}),
        tuple(MESSAGES),
    ],
)
async def test_a_context_that_was_not_seen_has_no_answer(events: list[Event], messages: Any) -> None:
    with pytest.raises(RecordingEnded, match="no answer to this context") as ended:
        await RecordedModel.of(events).reply(asking(*messages))

    assert "harness" in ended.value.hint


async def test_a_run_whose_contexts_cannot_come_again_answers_in_order(events: list[Event]) -> None:
    model = RecordedModel.of(events, by="order")

    got = [(await model.reply(asking({"role": "user", "content": "whatever"}))).message for _ in range(2)]

    assert got == [FIRST, SECOND]


async def test_tools_are_part_of_what_the_model_saw(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "find", "parameters": {}}}]
    events = events_of_plan(chat_run(tools=tools), open_blobs(str(tmp_path)))

    assert (await RecordedModel.of(events).reply(asking(*BEFORE_FIRST))).message == FIRST


async def test_the_same_context_asked_for_again_has_its_recorded_answers_in_turn(events: list[Event]) -> None:
    replied = next(event for event in events if isinstance(event.body, ev.ModelReplied))
    place = events.index(replied)
    assert isinstance(replied.body, ev.ModelReplied)
    other = replied.body.model_copy(update={"stop_reason": "second"})
    model = RecordedModel.of([*events[: place + 1], replied._replace(body=other), *events[place + 1 :]])

    got = [(await model.reply(asking(*BEFORE_FIRST))).stop_reason for _ in range(2)]

    assert got == ["", "second"]


async def test_all_that_was_recorded_of_a_reply_comes_back(events: list[Event]) -> None:
    recorded = {
        "stop_reason": "stop",
        "usage": Usage(input_tokens=9),
        "cost_micro_usd": 12,
        "model_served": "m-1",
        "sampling_seed": 7,
        "duration_ms": 30,
    }
    changed = [
        event._replace(body=event.body.model_copy(update=recorded))
        if isinstance(event.body, ev.ModelReplied)
        else event
        for event in events
    ]

    answer = await RecordedModel.of(changed).reply(asking(*BEFORE_FIRST))

    assert (answer.stop_reason, answer.usage, answer.cost_micro_usd) == ("stop", Usage(input_tokens=9), 12)
    assert (answer.served, answer.seed, answer.duration_ms) == ("m-1", 7, 30)


async def test_a_reply_in_the_blob_store_is_read_from_there(events: list[Event], tmp_path: Path) -> None:
    blobs = open_blobs(str(tmp_path / "more"))
    stored = [
        event._replace(body=event.body.model_copy(update={"reply": body_of(event.body.reply.text, blobs, 5)}))
        if isinstance(event.body, ev.ModelReplied)
        else event
        for event in events
    ]

    assert (await RecordedModel.of(stored, blobs).reply(asking(*BEFORE_FIRST))).message == FIRST
    with pytest.raises(InputError, match="blob store"):
        RecordedModel.of(stored)


@pytest.mark.parametrize("count", [0, 2])
def test_events_without_a_reply_are_no_model(events: list[Event], count: int) -> None:
    with pytest.raises(InputError, match="no reply"):
        RecordedModel.of(events[:count])


async def test_its_text_is_told_as_one_token(events: list[Event]) -> None:
    heard: list[str] = []
    model = RecordedModel.of(events)

    await model.reply(asking(*BEFORE_FIRST), on_token=heard.append)
    await model.reply(asking(*BEFORE_SECOND), on_token=heard.append)

    assert heard == ["found"]


async def test_shipped_runs_answer_every_context_that_they_hold(tmp_path: Path) -> None:
    blobs, asked = open_blobs(str(tmp_path)), 0
    for run, record in list(zip(shipped_runs(), recorded_objects(), strict=True))[:SHIPPED]:
        assert isinstance(run, Run)
        model = RecordedModel.of(events_of_plan(run, blobs), blobs)
        messages = record["messages"]
        for position in (n for n, one in enumerate(messages) if one["role"] == "assistant"):
            answer = await model.reply(asking(*messages[:position]))
            assert answer.message == messages[position]
            asked += 1

    assert asked > SHIPPED
