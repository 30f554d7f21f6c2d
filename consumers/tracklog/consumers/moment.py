"""A trajectory as it was at the end of a turn: what the model saw, what was allowed, what was left, what was open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tracklog.consumers.turns import Context, SeenMessage, Turns
from tracklog.infra.blobs import BlobStore
from tracklog.producers.spend import NOTHING_SPENT, Recount, Spend, remaining
from tracklog.producers.versions import Versions
from tracklog.producers.workspace import load_tree
from tracklog.producers.workspace_tree import Entry, tree_hash
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import BlobAltered, BlobMissing, InvalidEvent
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import Call, State
from tracklog.schemas.values import BlobRef, Budgets, ToolCall

__all__ = ["Files", "Moment", "Ruled", "Seen", "moment"]


class Seen(NamedTuple):
    """The context of the turn. `problem` says why it cannot be shown as it was, "" when it can: then its hash, made
    anew from the messages and the tools, is the one that was recorded."""

    event: Event
    rule_version: str
    messages: Sequence[SeenMessage]
    tools_hash: str
    tools: Any
    recorded: str
    recomputed: str
    problem: str


class Ruled(NamedTuple):
    """What was said of one call of the turn, in order: rulings, requests to approve, decisions."""

    call: ToolCall
    said: Sequence[Event]
    intent: Event | None
    result: Event | None


class Files(NamedTuple):
    """The workspace as a snapshot has it. `event` is the one that names it; later changes are not in it."""

    event: Event
    tree_hash: str
    entries: Mapping[str, Entry]
    problem: str = ""


class Moment(NamedTuple):
    """`state` is of the trajectory that the turn was done in: of an inherited turn, an origin. `versions` are those of
    the context."""

    trajectory_id: str
    turn: int
    last_turn: int
    state: State
    versions: Versions | None
    context: Seen | None
    reply: Event | None
    calls: Sequence[Ruled]
    spent: Spend
    budgets: Budgets
    left: Budgets | None
    open_calls: Mapping[str, Call]
    files: Files | None

    @property
    def inherited(self) -> bool:
        return self.state.trajectory_id != self.trajectory_id


def moment(turns: Turns, turn: int) -> Moment:
    """How it was when the turn was over, before anything of the next. Turn 0 is what comes before the first.

    Blocks. Raises InputError for a turn that is not there, BlobError when the blob store cannot be used.
    """
    end = turns.end(turn)
    events = turns.events[:end]
    own = events[-1].envelope.trajectory_id
    state = fold_all(State(own), (event for event in events if event.envelope.trajectory_id == own))
    inside = list(turns.of_turn(turn))
    budgets = state.task.budgets if state.task is not None else Budgets()
    spent = _spent(events, turn)
    context = turns.context(turn) if turn else None
    return Moment(
        trajectory_id=turns.trajectory_id,
        turn=turn,
        last_turn=turns.last,
        state=state,
        versions=turns.versions(end if context is None else context.place),
        context=None if context is None else _seen(turns, context),
        reply=next((event for event in inside if isinstance(event.body, ev.ModelReplied)), None),
        calls=_ruled(inside),
        spent=spent,
        budgets=budgets,
        left=remaining(budgets, spent),
        open_calls=state.calls,
        files=_files(events, turns.blobs),
    )


def _seen(turns: Turns, context: Context) -> Seen:
    messages = turns.messages(context)
    problem = next((one.problem for one in messages if one.problem), "")
    tools, recomputed = None, ""
    try:
        tools = turns.tools(context)
        recomputed = turns.recomputed(context).hex() if not problem else ""
    except (BlobMissing, BlobAltered, InvalidEvent) as error:
        problem = problem or error.message
    recorded = context.body.context_hash.hex()
    if not problem and recomputed != recorded:
        problem = "the messages and tools that the record names do not have the hash that was recorded"
    return Seen(
        context.event,
        context.body.rule_version,
        messages,
        "" if context.tools is None else context.tools.hex(),
        tools,
        recorded,
        recomputed,
        problem,
    )


def _ruled(events: Iterable[Event]) -> list[Ruled]:
    """By call of the reply, in its order."""
    calls: dict[str, ToolCall] = {}
    about: dict[str, list[Event]] = {}
    for event in events:
        if isinstance(event.body, ev.ModelReplied):
            calls.update((call.call_id, call) for call in event.body.tool_calls)
        elif isinstance(event.body, ev.Authorized | ev.ApprovalRequested | ev.ApprovalResolved | _Done):
            about.setdefault(event.body.call_id, []).append(event)
    return [
        Ruled(
            call,
            [one for one in about.get(call_id, ()) if not isinstance(one.body, _Done)],
            next((one for one in about.get(call_id, ()) if isinstance(one.body, ev.ToolIntent)), None),
            next((one for one in about.get(call_id, ()) if isinstance(one.body, ev.ToolResult)), None),
        )
        for call_id, call in calls.items()
    ]


_Done = ev.ToolIntent | ev.ToolResult


def _spent(events: Iterable[Event], turn: int) -> Spend:
    recount, tokens, cost = Recount(NOTHING_SPENT), 0, 0
    for event in events:
        recount.keep(event)
        if isinstance(event.body, ev.ModelReplied):
            tokens += event.body.usage.input_tokens + event.body.usage.output_tokens
            cost += event.body.cost_micro_usd or 0
    return Spend(turn, recount.tool_calls, tokens, cost, recount.wall_ms)


def _files(events: Sequence[Event], blobs: BlobStore) -> Files | None:
    for event in reversed(events):
        ref = _workspace(event)
        if ref is not None:
            try:
                tree, _ = load_tree(blobs, ref)
            except (BlobMissing, BlobAltered) as error:
                return Files(event, "", {}, error.message)
            return Files(event, tree_hash(tree), tree)
    return None


def _workspace(event: Event) -> BlobRef | None:
    return event.body.workspace if isinstance(event.body, ev.CheckpointTaken | ev.TaskStarted) else None
