"""What was done in one turn, in a form in which two turns are compared: equal when a reader would call them the same.

Call ids are drawn by models anew for each run, so calls go by their turn and place. Times, durations, costs, and how
an outcome came to be known are left out; so are the clock, randomness and ids that a run drew for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import orjson

from tracklog.consumers.summary import one_line, summary
from tracklog.consumers.turns import Turns
from tracklog.producers.importers.plan import RECORDING
from tracklog.producers.importers.transcript import seen_hash
from tracklog.producers.versions import Versions
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import BlobAltered, BlobMissing, InvalidEvent
from tracklog.schemas.values import ObservedKind, ToolCall

__all__ = ["ASPECTS", "Aspect", "TurnWork"]

WORDS_CHARS_MAX: Final = 400
DRAWN_ANEW: Final = frozenset({ObservedKind.CLOCK, ObservedKind.RANDOM, ObservedKind.ID})
ASPECTS: Final = (
    "task",
    "versions",
    "context",
    "reply",
    "arguments",
    "rulings",
    "outputs",
    "readings",
    "messages sent",
)
"""In the order in which they come about in a turn."""


class Aspect(NamedTuple):
    """`key` is compared, `words` are for people."""

    key: Any
    words: str


NOTHING: Final = Aspect(None, "(nothing)")


class TurnWork:
    """The turns of one trajectory, each as aspects."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self._names: dict[str, str] = {}
        self._hashes: dict[tuple[str, int], bytes] = {}
        for event in turns.events:
            if isinstance(event.body, ev.ModelReplied):
                calls = enumerate(event.body.tool_calls, start=1)
                self._names.update((call.call_id, f"{event.envelope.turn}.{n}") for n, call in calls)

    def of(self, turn: int) -> dict[str, Aspect]:
        """By name; what there is nothing of is left out."""
        events = list(self.turns.of_turn(turn))
        found = {
            "task": _task(events) if turn == 0 else None,
            "versions": _versions(self._held(turn)),
            "context": self._context(turn),
            **self._reply(events),
            "rulings": self._rulings(events),
            "outputs": self._outputs(events),
            "readings": _readings(events),
            "messages sent": _sent(events),
        }
        return {name: aspect for name, aspect in found.items() if aspect is not None}

    def words(self, turn: int) -> str:
        """The turn in a line."""
        if turn not in self.turns.contexts:
            return ""
        replies = (event for event in self.turns.of_turn(turn) if isinstance(event.body, ev.ModelReplied))
        return next((summary(event) for event in replies), "no reply")

    def outcome(self) -> Aspect:
        """How it ended, or that it has not."""
        ended = [event for event in self.turns.events if isinstance(event.body, ev.TaskEnded)]
        if not ended:
            return Aspect(None, "not ended")
        body = ended[-1].body
        assert isinstance(body, ev.TaskEnded)
        result = None if body.result is None else body.result.hash
        return Aspect((body.ending, result, body.reason), summary(ended[-1]))

    def messages(self, turn: int) -> list[bytes]:
        """The messages of a context, by hashes that do not know call ids. Raises what reading blobs raises."""
        return [self._hash(place) for place in self.turns.refs(self.turns.context(turn))]

    def message_words(self, turn: int, number: int) -> str:
        """One message of a context."""
        places = self.turns.refs(self.turns.context(turn))
        if number >= len(places):
            return f"{len(places)} messages"
        message = self.turns.message(*places[number])
        said = message.get("content") or message.get("tool_calls") or ""
        text = said if isinstance(said, str) else orjson.dumps(said).decode()
        return f"message {number} ({message.get('role')}): {one_line(text, WORDS_CHARS_MAX)}"

    def _held(self, turn: int) -> Versions | None:
        contexts = self.turns.contexts
        return self.turns.versions(contexts[turn].place if turn in contexts else self.turns.end(turn))

    def _context(self, turn: int) -> Aspect | None:
        context = self.turns.contexts.get(turn)
        if context is None:
            return None
        digest = context.body.context_hash
        return Aspect(digest, f"{context.body.messages} messages, hash {digest.hex()[:16]}")

    def _hash(self, place: tuple[str, int]) -> bytes:
        if place not in self._hashes:
            self._hashes[place] = seen_hash(self._nameless(place))
        return self._hashes[place]

    def _nameless(self, place: tuple[str, int]) -> dict[str, Any]:
        """The message with calls by turn and place, where that is known."""
        plain, event = dict(self.turns.message(*place)), self.turns.event(*place)
        body = None if event is None else event.body
        if isinstance(body, ev.ModelReplied) and len(plain.get("tool_calls") or ()) == len(body.tool_calls) > 0:
            calls = zip(plain["tool_calls"], body.tool_calls, strict=True)
            plain["tool_calls"] = [[call.get("type"), self._name(one.call_id), *_asked(one)] for call, one in calls]
        if "tool_call_id" in plain:
            plain["tool_call_id"] = self._name(
                body.call_id if isinstance(body, ev.ToolResult) else plain["tool_call_id"]
            )
        return plain

    def _name(self, call_id: Any) -> Any:
        return self._names.get(call_id, call_id)

    def _reply(self, events: Iterable[Event]) -> dict[str, Aspect]:
        reply = next((event for event in events if isinstance(event.body, ev.ModelReplied)), None)
        if reply is None or not isinstance(reply.body, ev.ModelReplied):
            return {}
        said = self._said(reply)
        tools = tuple(call.tool for call in reply.body.tool_calls)
        given = tuple(_asked(call) for call in reply.body.tool_calls)
        words = " ".join(f"{call.tool}({call.arguments})" for call in reply.body.tool_calls)
        return {
            "reply": Aspect((said, tools), one_line(summary(reply), WORDS_CHARS_MAX)),
            "arguments": Aspect(given, one_line(words, WORDS_CHARS_MAX)),
        }

    def _said(self, reply: Event) -> Any:
        """The reply without its calls; its hash when it cannot be had."""
        assert isinstance(reply.body, ev.ModelReplied)
        try:
            message = self.turns.message(reply.envelope.trajectory_id, reply.envelope.seq)
        except (BlobMissing, BlobAltered, InvalidEvent):
            return reply.body.reply.hash
        return {name: value for name, value in message.items() if name != "tool_calls" and value is not None}

    def _rulings(self, events: Iterable[Event]) -> Aspect | None:
        key, words = list[tuple[Any, ...]](), []
        for event in events:
            body = event.body
            if isinstance(body, ev.Authorized):
                key.append((self._name(body.call_id), body.ruling, body.rule))
            elif isinstance(body, ev.ApprovalResolved):
                given = [None if one is None else one.hash for one in (body.arguments, body.answer)]
                key.append((self._name(body.call_id), body.choice, body.approver, body.reason, *given))
            else:
                continue
            words.append(summary(event))
        return _listed(key, words)

    def _outputs(self, events: Iterable[Event]) -> Aspect | None:
        key, words = [], []
        for event in events:
            if isinstance(event.body, ev.ToolResult):
                key.append((self._name(event.body.call_id), event.body.status, event.body.output.hash))
                words.append(summary(event))
        return _listed(key, words)


def _listed(key: list[tuple[Any, ...]], words: Sequence[str]) -> Aspect | None:
    """Calls side by side are recorded in any order."""
    return Aspect(sorted(key, key=str), one_line("; ".join(words), WORDS_CHARS_MAX)) if key else None


def _task(events: Iterable[Event]) -> Aspect | None:
    started = next((event for event in events if isinstance(event.body, ev.TaskStarted)), None)
    if started is None or not isinstance(started.body, ev.TaskStarted):
        return None
    body = started.body
    words = f"{body.agent}: {body.task.text}"
    return Aspect((body.agent, body.task.hash, body.budgets), one_line(words, WORDS_CHARS_MAX))


def _versions(held: Versions | None) -> Aspect | None:
    if held is None:
        return None
    values = {name: value.hex()[:16] if isinstance(value, bytes) else value for name, value in held._asdict().items()}
    words = " · ".join(f"{name} {value or 'none'}" for name, value in values.items())
    return Aspect((held.model, held.prompt, held.tools, held.code, sorted(held.sampling.items())), words)


def _readings(events: Iterable[Event]) -> Aspect | None:
    key, words = [], []
    for event in events:
        body = event.body
        if isinstance(body, ev.Observed) and body.kind not in DRAWN_ANEW and body.name != RECORDING:
            key.append((body.kind, body.name, body.occurrence, body.value.hash))
            words.append(summary(event))
    return _listed(key, words)


def _sent(events: Iterable[Event]) -> Aspect | None:
    sent = [event for event in events if isinstance(event.body, ev.MessageSent)]
    key = [(event.body.peer, event.body.message.hash) for event in sent if isinstance(event.body, ev.MessageSent)]
    return _listed(key, [summary(event) for event in sent])


def _asked(call: ToolCall) -> tuple[str, str]:
    """A call by its tool and arguments: order of keys and spaces do not matter, broken JSON is a text."""
    try:
        return call.tool, orjson.dumps(orjson.loads(call.arguments), option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONDecodeError:
        return call.tool, call.arguments
