"""A model that answers from a recorded run: nothing is asked of anybody, and nothing is made up.

By context, a request is answered when its messages have the hash of a recorded context: the model saw just this, and
then said that. In order, the n-th request has the n-th reply, whatever it holds: for a run whose contexts cannot come
again, because another harness built them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import orjson

from tracklog.infra.blobs import BlobStore
from tracklog.producers.asked import asked_tools
from tracklog.producers.bodies import whole_text
from tracklog.producers.importers.transcript import seen_hash
from tracklog.producers.models import ModelAnswer, ModelRequest, OnToken
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.context import context_hash
from tracklog.schemas.errors import InputError, RecordingEnded
from tracklog.schemas.values import Body

__all__ = ["RecordedModel"]

Rule = tuple[str, bytes | None]
"""What a context's hash covers beside its messages: the assembly rule and the tools."""


class RecordedModel:
    """Answers in order: the reply at `request.replies_before` when the request says it, else the next one."""

    def __init__(self, answers: Sequence[ModelAnswer], *, name: str = "recorded") -> None:
        self._answers = tuple(answers)
        self._name = name
        self._asked = 0

    @staticmethod
    def of(
        events: Iterable[Event], blobs: BlobStore | None = None, *, by: Literal["context", "order"] = "context"
    ) -> RecordedModel:
        """From the accepted events of a run, imported or recorded live. `blobs` has the replies too long for events.

        Raises InputError for a run without a reply, and what reading a blob raises.
        """
        reading = _Reading(blobs)
        for event in events:
            if event.body is not None:
                reading.take(event.body, event.envelope.ext)
        if not reading.answers:
            raise InputError("these events have no reply of a model", hint="is it the right trajectory?")
        if by == "order":
            return RecordedModel(reading.answers, name=reading.model)
        return _ByContext(reading)

    @property
    def name(self) -> str:
        return self._name

    async def reply(self, request: ModelRequest, *, on_token: OnToken | None = None) -> ModelAnswer:
        """See Model. Raises RecordingEnded when the recording has no answer."""
        answer = self._find(request)
        content = answer.message.get("content")
        if on_token is not None and isinstance(content, str) and content:
            on_token(content)
        return answer

    def _find(self, request: ModelRequest) -> ModelAnswer:
        number = request.replies_before if request.replies_before is not None else self._asked
        if not 0 <= number < len(self._answers):
            raise RecordingEnded(
                f"the recording has {len(self._answers)} replies; number {number + 1} was asked for",
                hint="the run went further than the recorded one",
            )
        self._asked = number + 1
        return self._answers[number]


class _ByContext(RecordedModel):
    def __init__(self, reading: _Reading) -> None:
        super().__init__(reading.answers, name=reading.model)
        self._rules = tuple(reading.rules)
        self._by_context = reading.by_context
        self._given: defaultdict[bytes, int] = defaultdict(int)

    def _find(self, request: ModelRequest) -> ModelAnswer:
        hashes = [seen_hash(message) for message in request.messages]
        for rule, tools_hash in self._rules:
            found = context_hash(hashes, rule, tools_hash)
            answers = self._by_context.get(found)
            if answers:
                number = self._given[found]
                self._given[found] = number + 1
                return answers[number % len(answers)]
        raise RecordingEnded(
            f"the recording has no answer to this context of {len(hashes)} messages",
            hint="the harness built another context than the recorded one, or the run went further",
        )


class _Reading:
    """The replies of a run while its events are read in order."""

    def __init__(self, blobs: BlobStore | None) -> None:
        self.answers: list[ModelAnswer] = []
        self.by_context: defaultdict[bytes, list[ModelAnswer]] = defaultdict(list)
        self.rules: dict[Rule, None] = {}
        self.model = "recorded"
        self._blobs = blobs
        self._tools_hash: bytes | None = None
        self._context: bytes | None = None

    def take(self, body: ev.EventBody, ext: Mapping[str, str]) -> None:
        if isinstance(body, ev.TaskStarted):
            self.model = body.model or self.model
            self._tools_hash = None if body.tool_schemas is None else body.tool_schemas.hash
        elif isinstance(body, ev.DriftCrossed):
            self._tools_hash = body.new_tools
        elif isinstance(body, ev.ContextBuilt):
            self._context = body.context_hash
            self.rules[body.rule_version, asked_tools(ext, self._tools_hash)] = None
        elif isinstance(body, ev.ModelReplied):
            self._reply(body)

    def _reply(self, body: ev.ModelReplied) -> None:
        answer = ModelAnswer(
            message=orjson.loads(self._text(body.reply)),
            tool_calls=body.tool_calls,
            stop_reason=body.stop_reason,
            usage=body.usage,
            cost_micro_usd=body.cost_micro_usd,
            served=body.model_served,
            seed=body.sampling_seed,
            duration_ms=body.duration_ms,
        )
        self.answers.append(answer)
        if self._context is not None:
            self.by_context[self._context].append(answer)

    def _text(self, body: Body) -> str:
        if body.whole:
            return body.text
        if self._blobs is None:
            raise InputError("a reply of this run is in the blob store", hint="give blobs=")
        return whole_text(body, self._blobs)
