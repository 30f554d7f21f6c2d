"""Whatever a recorded run holds: it is refused by name, or its events fold regularly and give it back."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.importing import chat_line, chat_record, events_of_plan
from tracklog.infra.blobs import BlobStore, open_blobs
from tracklog.producers.importers.chat import parse_chat_jsonl
from tracklog.producers.importers.rebuild import rebuild_record
from tracklog.producers.importers.run import BadRun, Run
from tracklog.producers.importers.traj import parse_traj
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import State

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
EXTRAS = st.dictionaries(st.sampled_from(["agent", "name", "is_demo", "thought", "x"]), PLAIN, max_size=2)
IDS = st.sampled_from(["c1", "c2", "c1~2"])
CALLS = st.builds(lambda i, a: {"id": i, "function": {"name": "f", "arguments": a}}, IDS, TEXTS | PLAIN)
SPOKEN = st.builds(
    lambda role, content, extra: {**extra, "role": role, "content": content},
    st.sampled_from(["system", "user", "developer"]),
    TEXTS | PLAIN,
    EXTRAS,
)
REPLIES = st.builds(
    lambda content, calls, extra: {**extra, "role": "assistant", "content": content, "tool_calls": calls},
    TEXTS | st.none(),
    st.lists(CALLS, max_size=3),
    EXTRAS,
)
ACTIONS = st.builds(
    lambda a: {"role": "assistant", "content": "do", "action": a}, st.sampled_from(["ls", "edit 1", ""])
)
RESULTS = st.builds(
    lambda i, content, extra: {**extra, "role": "tool", "tool_call_id": i, "content": content},
    IDS,
    TEXTS | PLAIN,
    EXTRAS,
)
MESSAGES = st.lists(SPOKEN | REPLIES | ACTIONS | RESULTS, min_size=1, max_size=8)


@pytest.fixture(scope="module")
def blobs() -> Iterator[BlobStore]:
    with tempfile.TemporaryDirectory() as folder:
        yield open_blobs(folder)


def check(run: Run | BadRun, record: dict[str, Any], blobs: BlobStore) -> None:
    if isinstance(run, BadRun):
        assert run.reason
        return
    events = events_of_plan(run, blobs)
    state = fold_all(State(run.trajectory_id), events)
    assert (state.irregular, state.faults, state.ended) == (0, 0, True)
    assert rebuild_record(events, blobs) == record


@given(messages=MESSAGES, beside=EXTRAS)
def test_any_chat_run_is_refused_or_given_back(messages: list[Any], beside: dict[str, Any], blobs: BlobStore) -> None:
    record = {"id": "r", **beside, "messages": messages}
    (run,) = parse_chat_jsonl([chat_line(record)], "some.jsonl")
    check(run, record, blobs)


@given(history=MESSAGES, beside=EXTRAS)
def test_any_traj_file_is_refused_or_given_back(history: list[Any], beside: dict[str, Any], blobs: BlobStore) -> None:
    record = {**beside, "history": history, "trajectory": [{"observation": "o", "execution_time": 0.1}] * len(history)}
    check(parse_traj(json.dumps(record).encode(), "some.traj"), record, blobs)


@given(at=st.integers(0, 600), put=st.binary(max_size=3), drop=st.integers(0, 5))
def test_no_damage_to_a_line_is_more_than_a_bad_run(at: int, put: bytes, drop: int) -> None:
    line = chat_line(chat_record())
    damaged = line[:at] + put + line[at + drop :]
    found = list(parse_chat_jsonl([damaged], "some.jsonl"))
    assert len(found) == 1
    assert isinstance(found[0], BadRun | Run)
    assert isinstance(parse_traj(damaged, "some.traj"), BadRun)
