"""Chat-completions records: every form they come in, and every way they can be broken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.importing import chat_line, chat_record, chat_run, events_of_plan
from tracklog.infra.blobs import BlobStore, open_blobs
from tracklog.producers.importers.chat import parse_chat_jsonl
from tracklog.producers.importers.rebuild import rebuild_record
from tracklog.producers.importers.run import BadRun, Outcome, Reply, Run, Spoken
from tracklog.schemas.limits import CALLS_PER_TURN_MAX, EVENT_BYTES_MAX, TRAJECTORY_ID_BYTES_MAX
from tracklog.schemas.values import ResultStatus, Role

CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
USER = {"role": "user", "content": "hello"}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "done"}


@pytest.fixture
def blobs(tmp_path: Any) -> BlobStore:
    return open_blobs(str(tmp_path))


def read(*lines: bytes, file: str = "some_runs.jsonl") -> list[Run | BadRun]:
    return list(parse_chat_jsonl(lines, file))


def with_messages(*messages: Any) -> bytes:
    return chat_line({"id": "r", "messages": list(messages)})


BAD_LINES: dict[str, tuple[bytes, str]] = {
    "broken JSON": (b'{"messages": [}\n', "not JSON: Expecting value at character 14"),
    "half-written": (b'{"id": "r", "mess', "half-written: the file ends inside this line"),
    "not UTF-8": (b'{"id": "\xff"}\n', "not UTF-8: byte 0xff at position 8"),
    "a list": (b"[1]\n", "a run is a JSON object, this is a list"),
    "NaN": (b'{"id": "r", "messages": [{"role": "user", "content": NaN}]}\n', "a number is not finite or too large"),
    "infinite": (b'{"id": "r", "n": 1e999, "messages": []}\n', "a number is not finite or too large"),
    "huge integer": (b'{"id": "r", "n": %d, "messages": []}\n' % 10**30, "cannot be written back"),
    "lone surrogate": (
        b'{"id": "r", "messages": [{"role": "user", "content": "\\ud800"}]}\n',
        "cannot be written back",
    ),
    "nested too deeply": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n", "nested too deeply"),
    "no messages": (chat_line({"id": "r"}), "the field 'messages' is missing"),
    "messages no list": (chat_line({"id": "r", "messages": {}}), "'messages' holds no list of messages"),
    "empty messages": (chat_line({"id": "r", "messages": []}), "'messages' holds no list of messages"),
    "message no object": (with_messages("hello"), "message 0 is no JSON object but a str"),
    "no role": (with_messages({"content": "x"}), "message 0: the field 'role' is missing"),
    "unknown role": (with_messages(USER, {"role": "robot", "content": "x"}), "message 1: unknown role 'robot'"),
    "role no text": (with_messages({"role": ["user"], "content": "x"}), "message 0: unknown role ['user']"),
    "no content": (with_messages({"role": "user"}), "message 0: the field 'content' is missing"),
    "nothing said": (with_messages(USER, {"role": "assistant"}), "message 1: the field 'content' is missing"),
    "result without content": (
        with_messages(ASKS, {"role": "tool", "tool_call_id": "c1"}),
        "message 1: the field 'content'",
    ),
    "result without call": (with_messages(USER, RESULT), "message 1: a result for call 'c1', which is not open"),
    "second result": (with_messages(ASKS, RESULT, RESULT), "message 2: a result for call 'c1', which is not open"),
    "result without id": (
        with_messages(ASKS, {"role": "tool", "content": "x"}),
        "a tool message without 'tool_call_id'",
    ),
    "call without id": (with_messages({**ASKS, "tool_calls": [{**CALL, "id": ""}]}), "a tool call without 'id'"),
    "call without name": (
        with_messages({**ASKS, "tool_calls": [{**CALL, "function": {}}]}),
        "a tool call without 'name'",
    ),
    "call no function": (with_messages({**ASKS, "tool_calls": [{"id": "c"}]}), "a tool call without 'function'"),
    "calls no list": (with_messages({**ASKS, "tool_calls": CALL}), "'tool_calls' is no list"),
    "too many calls": (
        with_messages({**ASKS, "tool_calls": [{**CALL, "id": f"c{n}"} for n in range(CALLS_PER_TURN_MAX + 1)]}),
        f"at most {CALLS_PER_TURN_MAX} fit",
    ),
    "huge arguments": (
        with_messages(
            {**ASKS, "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "x" * EVENT_BYTES_MAX}}]}
        ),
        "bytes of arguments",
    ),
    "huge shape": (with_messages({**USER, "more": "x" * EVENT_BYTES_MAX}), "bytes beside its content"),
    "over-long call id": (
        with_messages({**ASKS, "tool_calls": [{**CALL, "id": "c" * 2000}]}),
        "at most 1024 characters",
    ),
    "empty id": (chat_line(chat_record(id="")), "the trajectory id is empty"),
    "over-long id": (chat_line(chat_record(id="x" * (TRAJECTORY_ID_BYTES_MAX + 1))), "has 257 bytes"),
    "unprintable id": (chat_line(chat_record(id="a\nb")), "characters that do not print"),
    "id no text": (chat_line(chat_record(id=[1])), "'id' must be a text or a number"),
    "empty task": (chat_line(chat_record(task_id="", trial=1)), "'task_id' and 'trial' must be texts or numbers"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_named_and_the_other_runs_go_in(name: str) -> None:
    line, reason = BAD_LINES[name]
    good = chat_line(chat_record())
    if not line.endswith(b"\n"):
        first, bad = read(good, line)
        number = 2
        assert isinstance(first, Run)
    else:
        first, bad, last = read(good, line, chat_line(chat_record(id="run-2")))
        number = 2
        assert isinstance(first, Run)
        assert isinstance(last, Run)
    assert isinstance(bad, BadRun)
    assert (bad.file, bad.line) == ("some_runs.jsonl", number)
    assert reason in bad.reason
    assert str(bad).startswith("some_runs.jsonl:2: ")


def test_an_id_at_the_limit_is_taken() -> None:
    assert chat_run(id="x" * TRAJECTORY_ID_BYTES_MAX).trajectory_id == "x" * TRAJECTORY_ID_BYTES_MAX


@pytest.mark.parametrize("lines", [(), (b"\n", b"  \n")])
def test_an_empty_file_is_named(lines: tuple[bytes, ...]) -> None:
    assert read(*lines) == [BadRun(file="some_runs.jsonl", line=0, reason="the file holds no run")]


def test_blank_lines_a_byte_order_mark_and_a_missing_last_line_end_do_no_harm() -> None:
    one, two = chat_line(chat_record(id="one")), chat_line(chat_record(id="two"))
    runs = read(b"\xef\xbb\xbf" + one, b"\r\n", two.rstrip())
    assert [run.trajectory_id for run in runs if isinstance(run, Run)] == ["one", "two"]


def test_a_run_is_named_by_task_and_trial_else_by_its_id_else_by_its_content() -> None:
    lines = [chat_line(chat_record(task_id=17, trial=0)), chat_line(chat_record(id=7))]
    bare = {"messages": [USER]}
    spaced = json.dumps(bare, indent=None, separators=(" , ", " : ")).encode()
    by_task, by_id, by_content, again = read(*lines, chat_line(bare), spaced, file="a/airline_runs.jsonl")
    assert isinstance(by_content, Run)
    assert isinstance(by_task, Run)
    assert by_task.trajectory_id == "airline-17-0"
    assert isinstance(by_id, Run)
    assert by_id.trajectory_id == "7"
    assert by_content.trajectory_id == f"airline-{by_content.source[:16]}"
    assert isinstance(again, Run)
    assert (by_content.file, by_content.line, again.line) == ("a/airline_runs.jsonl", 3, 4)
    assert again.model_copy(update={"line": 3}) == by_content


def test_labels_reward_model_and_metadata_are_taken() -> None:
    run = chat_run(task_id=0, trial=3, reward=1.0, model="m-1", agent="a-1", metadata={"order": "W123", "vip": True})
    assert (run.model, run.agent, run.result) == ("m-1", "a-1", '{"reward":1.0}')
    wanted = {"dataset": "small", "task": "0", "trial": "3", "reward": "1", "order": "W123", "vip": "true"}
    assert run.labels == wanted


def test_what_is_no_label_stays_in_the_recording_only(blobs: BlobStore) -> None:
    metadata = {"list": [1], "long": "x" * 2000, **{f"n{n}": n for n in range(50)}}
    run = chat_run(metadata=metadata, reward="good")
    assert "list" not in run.labels
    assert "long" not in run.labels
    assert len(run.labels) == 32
    assert rebuild_record(events_of_plan(run, blobs), blobs)["metadata"] == metadata


@pytest.mark.parametrize(
    "messages",
    [
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}],
            }
        ],
        [{"role": "system", "content": [{"type": "text", "text": "be kind"}]}, USER],
        [{"role": "developer", "content": "be kind"}, USER],
        [USER, {"role": "system", "content": "now be short"}, {"role": "assistant", "content": "ok"}],
        [{"role": "system", "content": "one"}, {"role": "system", "content": "two"}, USER],
        [{"role": "assistant", "content": "I start"}, {"role": "assistant", "content": "and go on"}],
        [USER, {"role": "assistant", "content": "", "refusal": None, "tool_calls": []}],
        [USER, {**ASKS, "tool_calls": None, "content": "no call"}],
        [ASKS, {**RESULT, "content": None}],
        [ASKS, {**RESULT, "content": [{"type": "text", "text": "done"}], "name": "find"}],
        [ASKS, {**RESULT, "name": "another"}],
        [{"role": "user", "content": "", "name": "Ann"}],
        [{"role": "user", "content": "größer 😀\u0000\u2028"}, {"role": "assistant", "content": "\r\n"}],
        [{**ASKS, "tool_calls": [CALL, {**CALL, "id": "c2", "function": {"name": "g", "arguments": {"a": 1}}}]}],
        [ASKS, USER, RESULT, ASKS, RESULT, ASKS],
    ],
)
def test_every_form_of_message_is_rebuilt_exactly(messages: list[dict[str, Any]], blobs: BlobStore) -> None:
    record = {"id": "r", "messages": messages, "extra": {"n": 1.5}}
    (run,) = read(chat_line(record))
    assert isinstance(run, Run), str(run)
    assert rebuild_record(events_of_plan(run, blobs), blobs) == record


def test_several_calls_of_one_reply_are_matched_by_id_whatever_the_order_of_results() -> None:
    asks = {**ASKS, "tool_calls": [CALL, {**CALL, "id": "c2"}]}
    run = chat_run(messages=[asks, {**RESULT, "tool_call_id": "c2", "content": "two"}, {**RESULT, "content": "one"}])
    outcomes = [step for step in run.steps if isinstance(step, Outcome)]
    assert [(step.call_id, step.content.text) for step in outcomes] == [("c2", "two"), ("c1", "one")]


def test_call_ids_used_again_are_made_unique_and_kept_as_they_were_in_the_reply() -> None:
    odd = {**CALL, "id": "c1~2"}
    run = chat_run(messages=[{**ASKS, "tool_calls": [CALL]}, RESULT, {**ASKS, "tool_calls": [CALL, odd, CALL]}])
    replies = [step for step in run.steps if isinstance(step, Reply)]
    assert [[call.call_id for call in reply.calls] for reply in replies] == [["c1"], ["c1~2", "c1~2~2", "c1~3"]]
    assert [call["id"] for call in json.loads(replies[1].message)["tool_calls"]] == ["c1", "c1~2", "c1"]


def test_results_for_a_reused_id_go_to_the_oldest_open_call() -> None:
    run = chat_run(messages=[ASKS, ASKS, {**RESULT, "content": "first"}, {**RESULT, "content": "second"}])
    outcomes = [step for step in run.steps if isinstance(step, Outcome)]
    assert [(step.call_id, step.content.text) for step in outcomes] == [("c1", "first"), ("c1~2", "second")]


def test_only_a_form_that_says_so_has_failed_calls() -> None:
    messages = [ASKS, {**RESULT, "content": "Error: no such flight"}]
    (tau_bench,) = [s for s in chat_run(messages=messages, task_id=1, trial=0).steps if isinstance(s, Outcome)]
    (plain,) = [s for s in chat_run(messages=messages).steps if isinstance(s, Outcome)]
    assert (tau_bench.status, plain.status) == (ResultStatus.ERROR, ResultStatus.OK)


def test_the_task_is_the_first_user_turn_and_the_prompt_is_no_step() -> None:
    run = chat_run(messages=[{"role": "system", "content": "p"}, {"role": "user", "content": [{"text": "do it"}]}])
    assert run.task == "do it"
    assert run.prompt is not None
    assert run.prompt.content.text == "p"
    assert [step.role for step in run.steps if isinstance(step, Spoken)] == [Role.USER]
