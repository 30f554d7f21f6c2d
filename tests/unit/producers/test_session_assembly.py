"""Contexts as edits: whatever a program does with its messages, the edits give them back, and each is kept once."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracklog.producers import assembly
from tracklog.producers.assembly import Assembly, Message, Reading, heard
from tracklog.producers.importers.shape import content_value, reshaped
from tracklog.producers.importers.transcript import seen_hash, spoken_message
from tracklog.schemas.errors import InvalidEvent
from tracklog.schemas.events import ContextBuilt
from tracklog.schemas.fold import apply_edits
from tracklog.schemas.state import MessageRef
from tracklog.schemas.values import ZERO_HASH

contexts = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=8), max_size=8)


def digest(message: str) -> bytes:
    return hashlib.sha256(message.encode()).digest()


@settings(max_examples=200)
@given(contexts)
def test_the_fold_sees_the_messages_that_the_program_gave(wanted: list[list[str]]) -> None:
    """Given any row of contexts, folding the edits names, for each message in its place, an event that holds it."""
    made, seq = Assembly(), 0
    kept: dict[int, str] = {}
    refs: tuple[MessageRef, ...] = ()
    for messages in wanted:
        hashes = [digest(message) for message in messages]
        for position in made.new(hashes):
            seq += 1
            kept[seq] = messages[position]
            made.know(hashes[position], seq)
        edits = made.build(hashes)
        body = ContextBuilt(edits=edits, context_hash=ZERO_HASH, messages=len(messages), rule_version="1")
        refs = apply_edits(refs, body)
        assert [kept[ref.seq] for ref in refs] == messages
        assert len({ref.seq for ref in refs}) == len(refs)
    assert seq == sum(max((messages.count(one) for messages in wanted), default=0) for one in "abcdefgh")


def test_a_context_that_grows_is_one_keep_and_one_add() -> None:
    made, hashes = Assembly(), [digest(str(n)) for n in range(1000)]
    for n, one in enumerate(hashes):
        made.know(one, n)
    made.build(hashes[:998])
    keep, add = made.build(hashes)
    assert (keep.count, add.seqs) == (998, (998, 999))


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hello"},
        {"role": "system", "content": "be kind"},
        {"role": "developer", "content": "be brief", "name": "me"},
        {"role": "user", "content": [{"type": "text", "text": "look"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "cut"},
    ],
)
def test_a_message_can_be_had_back_from_its_event(message: dict[str, object]) -> None:
    said = heard(message)
    again = reshaped(spoken_message(said.role, content_value(said.text, said.media_type)), said.shape)
    assert again == message
    assert seen_hash(again) == seen_hash(message)


@pytest.mark.parametrize("bad", [["text"], [{"content": "x"}], [{"role": "", "content": "x"}], [{"role": object()}]])
def test_what_is_no_message_is_refused(bad: list[object]) -> None:
    with pytest.raises(InvalidEvent):
        Reading().read(bad)  # type: ignore[arg-type]


spoken = st.fixed_dictionaries(
    {"role": st.just("user"), "content": st.sampled_from(["", "a", '"},', 1, True, 1.0, None, ["a"], [1], [True]])}
)
rows = st.lists(st.lists(spoken))


@given(rows)
def test_messages_read_after_others_are_read_as_if_alone(wanted: list[list[dict[str, object]]]) -> None:
    """Given lists that begin alike or not, what was read before never shows in what is read now."""
    reading = Reading()
    for messages in wanted:
        assert reading.read(messages) == Reading().read(messages)


@pytest.mark.parametrize(
    ("first", "then"), [("a", "c"), (1, True), ([{"type": "text", "text": "a"}], [{"type": "text", "text": "b"}])]
)
def test_a_message_that_a_program_changed_in_its_list_is_read_again(first: object, then: object) -> None:
    reading, content = Reading(), [first] if isinstance(first, list) else first
    messages: list[dict[str, Any]] = [{"role": "user", "content": content}, {"role": "user", "content": "b"}]
    reading.read(messages)
    if isinstance(content, list):
        content[0] = then
    else:
        messages[0]["content"] = then
    assert orjson.dumps(reading.read(messages)[0]) == orjson.dumps(messages)
    assert reading.read(messages) == Reading().read(messages)


def test_each_message_of_a_context_that_grows_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[object] = []

    def counted(message: Message) -> bytes:
        hashed.append(message)
        return seen_hash(message)

    monkeypatch.setattr(assembly, "seen_hash", counted)
    reading, messages = Reading(), list[dict[str, Any]]()
    for turn in range(100):
        messages.append({"role": "user", "content": str(turn)})
        reading.read(messages)
    assert hashed == messages
