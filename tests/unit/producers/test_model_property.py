"""Whatever an endpoint sends, it is an answer that can be recorded, or malformed."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from tracklog.producers.model_completion import Chunks, answer_of, loaded
from tracklog.producers.models import ModelRequest, with_call_ids
from tracklog.schemas.errors import ModelMalformed
from tracklog.schemas.events import ModelReplied
from tracklog.schemas.values import Body

REQUEST = ModelRequest(messages=({"role": "assistant", "tool_calls": [{"id": "a"}, {"id": None}, 3]},))
TEXT = st.text(st.sampled_from("ab{\u00e9\ud800\udfff\U0001f600\x00"), max_size=10)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


def odd(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly as it should be, now and then anything."""
    return st.one_of(usual, usual, usual, JSON)


def record(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return odd(st.fixed_dictionaries({}, optional={name: odd(one) for name, one in fields.items()}))


IDS = st.sampled_from(["a", "b", "", None])
CALLS = st.lists(
    record(id=IDS, index=st.integers(0, 3), function=record(name=st.just("f"), arguments=TEXT)), max_size=4
)
MESSAGE = record(role=st.just("assistant"), content=TEXT, tool_calls=CALLS, reasoning=TEXT)
USAGE = record(prompt_tokens=st.integers(), prompt_tokens_details=record(cached_tokens=st.integers()), cost=st.floats())
COMPLETION = record(
    choices=st.lists(record(message=MESSAGE, finish_reason=TEXT), min_size=1, max_size=2), usage=USAGE, model=TEXT
)
CHUNK = record(choices=st.lists(record(delta=MESSAGE, finish_reason=TEXT), max_size=2), usage=USAGE, model=TEXT)


def recordable(completion: Any) -> None:
    """The answer makes an event; that of a completion that is none is ModelMalformed."""
    with suppress(ModelMalformed):
        answer = answer_of(completion, REQUEST)
        event = ModelReplied(
            reply=Body.of(orjson.dumps(answer.message).decode()),
            tool_calls=answer.tool_calls,
            stop_reason=answer.stop_reason,
            usage=answer.usage,
            cost_micro_usd=answer.cost_micro_usd,
            model_served=answer.served,
        )
        shown = with_call_ids(answer.message, answer.tool_calls)
        assert [one["id"] for one in shown.get("tool_calls") or ()] == [one.call_id for one in event.tool_calls]
        assert "a" not in {one.call_id for one in event.tool_calls}


@given(completion=st.dictionaries(TEXT, JSON, max_size=2) | COMPLETION.filter(lambda one: isinstance(one, dict)))
@settings(max_examples=150, deadline=None)
def test_any_completion_is_an_answer_or_malformed(completion: Any) -> None:
    recordable(completion)


@given(chunks=st.lists(CHUNK.filter(lambda one: isinstance(one, dict)), max_size=4))
@settings(max_examples=150, deadline=None)
def test_any_chunks_are_an_answer_or_malformed(chunks: list[Any]) -> None:
    heard: list[str] = []
    gathered = Chunks(heard.append)
    with suppress(ModelMalformed):
        for chunk in chunks:
            gathered.take(chunk)
        assert all(heard)
    recordable(gathered.completion())


@given(data=st.binary(max_size=30) | JSON.map(lambda value: repr(value).encode("utf-8", "surrogatepass")))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_an_object_or_malformed(data: bytes) -> None:
    with suppress(ModelMalformed):
        assert isinstance(loaded(data), dict)
