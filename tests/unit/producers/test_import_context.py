"""Hashes of messages and contexts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracklog.schemas.context import ContextHash, context_hash, message_hash

ONE, TWO = message_hash("user", "one"), message_hash("user", "two")


def test_hashes_are_fixed_for_ever() -> None:
    assert message_hash("user", "Zürich").hex() == "19df09d36fcded19381e992bb43ffe18365f5e1db9702f9cf804acf688d4aff2"
    assert (
        context_hash([ONE, TWO], "rule/1").hex() == "92f02032d4b32c00cf06450781671d13155640fb2ec38d10f91470b9089f4e35"
    )


def test_the_order_of_keys_does_not_matter_and_no_calls_is_one_thing() -> None:
    assert message_hash("assistant", None, [{"a": 1, "b": 2}]) == message_hash("assistant", None, [{"b": 2, "a": 1}])
    assert message_hash("assistant", "x", []) == message_hash("assistant", "x", None)


@pytest.mark.parametrize(
    "other",
    [
        message_hash("system", "one"),
        message_hash("user", "one "),
        message_hash("user", ["one"]),
        message_hash("user", "one", [{"id": "c"}]),
        message_hash("user", "one", None, "c"),
        message_hash("user", "one", None, None, "n"),
    ],
)
def test_whatever_a_model_reads_changes_the_hash(other: bytes) -> None:
    assert other != ONE


def test_contexts_differ_by_order_rule_tools_and_length() -> None:
    found = {
        context_hash([ONE, TWO], "rule/1"),
        context_hash([TWO, ONE], "rule/1"),
        context_hash([ONE], "rule/1"),
        context_hash([], "rule/1"),
        context_hash([ONE, TWO], "rule/2"),
        context_hash([ONE, TWO], "rule/1", TWO),
    }
    assert len(found) == 6


def test_a_hash_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        context_hash([b"short"], "rule/1")


HASHES = st.lists(st.sampled_from([ONE, TWO, message_hash("user", "three")]), max_size=5)


@given(st.lists(st.tuples(HASHES, st.sampled_from(["rule/1", "rule/2"]), st.sampled_from([None, TWO]))))
def test_contexts_hashed_one_after_another_have_the_hashes_that_they_have_alone(
    contexts: list[tuple[list[bytes], str, bytes | None]],
) -> None:
    running = ContextHash()
    for context in contexts:
        assert running.of(*context) == context_hash(*context)
