"""A run's events: their order, what they refer to, and what a context holds."""

from __future__ import annotations

import hashlib

from tests.support.importing import chat_record, chat_run, events_of_plan
from tracklog.infra.blobs import open_blobs
from tracklog.producers.importers.plan import located, plan
from tracklog.producers.importers.standing import ALREADY, next_step
from tracklog.schemas.context import context_hash, message_hash
from tracklog.schemas.events import ContextBuilt, ModelReplied, TaskStarted, ToolResult
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import MessageRef, State
from tracklog.schemas.values import ContextEdit, EditOp, ResultStatus

NAMES = [
    "TaskStarted",
    "Observed",
    "MessageReceived",
    "ContextBuilt",
    "ModelReplied",
    "Authorized",
    "ToolIntent",
    "ToolResult",
    "ContextBuilt",
    "ModelReplied",
    "MessageReceived",
    "TaskEnded",
]


def contexts(**changes: object) -> list[ContextBuilt]:
    return [p.body for p in plan(chat_run(**changes)) if isinstance(p.body, ContextBuilt)]


def test_the_events_of_a_run_come_in_this_order() -> None:
    planned = plan(chat_run())
    assert [type(p.body).__name__ for p in planned] == NAMES
    assert [p.turn for p in planned] == [0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2]


def test_a_reply_follows_its_context_a_call_its_reply_and_a_result_its_intent() -> None:
    assert [p.causes for p in plan(chat_run())] == [(), (), (), (), (3,), (4,), (4,), (6,), (), (8,), (), ()]


def test_a_context_keeps_the_one_before_and_adds_what_came_since() -> None:
    first, second = contexts()
    assert first.edits == (ContextEdit(op=EditOp.ADD, seqs=(0, 2)),)
    assert second.edits == (ContextEdit(op=EditOp.KEEP, count=2), ContextEdit(op=EditOp.ADD, seqs=(4, 7)))
    assert (first.messages, second.messages) == (2, 4)


def test_a_run_that_starts_with_the_model_has_an_empty_first_context() -> None:
    (only,) = contexts(messages=[{"role": "assistant", "content": "hello"}])
    assert (only.edits, only.messages) == ((), 0)


def test_references_take_the_seqs_that_the_log_gave() -> None:
    _, second = contexts()
    moved = located(second, [10, 20, 30, 40, 50, 60, 70, 80])
    assert isinstance(moved, ContextBuilt)
    assert moved.edits[1].seqs == (50, 80)


def test_the_folded_context_refers_to_every_message_before_the_last_reply(tmp_path: object) -> None:
    run = chat_run()
    state = fold_all(State(run.trajectory_id), events_of_plan(run, open_blobs(str(tmp_path))))
    assert state.context == tuple(MessageRef(seq) for seq in (1, 3, 5, 8))


def test_context_hashes_are_those_of_the_messages_that_the_model_saw() -> None:
    messages = chat_record()["messages"]
    seen = [
        message_hash(m["role"], m["content"], m.get("tool_calls"), m.get("tool_call_id"), m.get("name"))
        for m in messages
    ]
    first, second = contexts()
    assert first.context_hash == context_hash(seen[:2], "recorded")
    assert second.context_hash == context_hash(seen[:4], "recorded")


def test_the_same_messages_with_other_tools_are_another_context() -> None:
    assert contexts(tools=[{"name": "find"}])[0].context_hash != contexts()[0].context_hash


def test_prompt_and_tool_schemas_are_named_by_hash_and_stored_before_the_event() -> None:
    first = plan(chat_run(tools=[{"name": "find"}]))[0]
    assert isinstance(first.body, TaskStarted)
    assert [stored.text for stored in first.stores] == ["be kind", '[{"name":"find"}]']
    for ref, stored in zip((first.body.prompt_template, first.body.tool_schemas), first.stores, strict=True):
        assert ref is not None
        assert ref.hash == hashlib.sha256(stored.text.encode()).digest()
        assert ref.size_bytes == len(stored.text)


def test_calls_without_a_result_are_settled_as_unknown_before_the_end() -> None:
    call = chat_record()["messages"][2]
    planned = plan(chat_run(messages=[call, call]))
    results = [p.body for p in planned if isinstance(p.body, ToolResult)]
    assert [(r.call_id, r.status) for r in results] == [("c1", ResultStatus.UNKNOWN), ("c1~2", ResultStatus.UNKNOWN)]
    assert [type(p.body).__name__ for p in planned[-3:]] == ["ToolResult", "ToolResult", "TaskEnded"]


def test_a_reply_is_kept_verbatim_with_its_keys_in_order() -> None:
    (reply, _) = [p.body for p in plan(chat_run()) if isinstance(p.body, ModelReplied)]
    assert reply.reply.text.startswith('{"role":"assistant","content":null,"tool_calls":[{"id":"c1"')
    assert reply.reply.media_type == "application/json"


def test_where_a_trajectory_stands_towards_a_run(tmp_path: object) -> None:
    run, other = chat_run(), chat_run(extra=1)
    events = events_of_plan(run, open_blobs(str(tmp_path)))
    states = [fold_all(State(run.trajectory_id), events[:count]) for count in range(len(events) + 1)]
    assert [next_step(run, state, "default") for state in states[:-1]] == [0, 0, *range(1, len(events) - 1)]
    assert next_step(run, states[-1], "default") == ALREADY
    assert "another run" in str(next_step(other, states[3], "default"))
    assert "another run" in str(next_step(other, states[-1], "default"))
    assert "tenant 'default', not to 'other'" in str(next_step(run, states[3], "other"))
    task = states[3].task
    assert task is not None
    older = states[3]._replace(task=task._replace(code_version="import/0"))
    assert "importer version 'import/0'" in str(next_step(run, older, "default"))
