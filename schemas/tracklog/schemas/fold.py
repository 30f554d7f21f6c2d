"""The pure fold: state and event to state (DESIGN §5, §6). No offsets, no clock, no I/O.

An accepted event changes the state by its type; anything else only leaves its verdict in the counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.head import Judgement, Verdict, advance, judge
from tracklog.schemas.lifecycle import CALL, TRAJECTORY, CallStatus, step_of
from tracklog.schemas.state import Call, Fault, MessageRef, State, Task
from tracklog.schemas.values import EditOp

K = TypeVar("K")
V = TypeVar("V")


def fold(state: State, event: Event) -> tuple[State, Judgement]:
    """Judges one record and takes it in. Never raises for content: what the log holds is a fact."""
    judgement = judge(state.head, event)
    head = advance(state.head, event, judgement)
    if judgement.verdict is not Verdict.ACCEPTED:
        return _set_aside(state._replace(head=head), event, judgement), judgement
    body = event.body
    handler = _HANDLERS.get(type(body))
    moved = _accept(state._replace(head=head), event)
    return (handler(moved, event, body) if handler is not None else moved), judgement


def fold_all(state: State, events: Iterable[Event]) -> State:
    """Folds records in log order."""
    for event in events:
        state, _ = fold(state, event)
    return state


def _set_aside(state: State, event: Event, judgement: Judgement) -> State:
    if not judgement.fault:
        counts = {**state.harmless, judgement.verdict.value: state.harmless.get(judgement.verdict.value, 0) + 1}
        return state._replace(harmless=counts)
    return state._replace(faults=state.faults + 1, fault=state.fault or _fault(state, event, judgement))


def _fault(state: State, event: Event, judgement: Judgement) -> Fault:
    """Names the event that is wrong: a fork contradicts the accepted event before it."""
    if judgement.verdict is Verdict.FORK:
        return Fault(state.head.seq, judgement.verdict.value, "its successor hangs on another hash")
    if judgement.verdict is Verdict.STALE:
        return Fault(event.envelope.seq, judgement.verdict.value, "two different events of the same owner have this seq")
    return Fault(event.envelope.seq, judgement.verdict.value, event.problem)


def _accept(state: State, event: Event) -> State:
    """What every accepted event does: counters, turn, lamport, inbox position, lifecycle."""
    envelope = event.envelope
    status = TRAJECTORY[state.status].get(step_of(event.name, event.body))
    irregular = status is None and event.body is not None
    inbox, position = state.inbox, state.inbox_position
    if envelope.inbox_id is not None:
        taken = envelope.inbox_id
        inbox = _put(inbox, taken.source, max(taken.seq, inbox.get(taken.source, -1)))
        position = envelope.inbox_position if envelope.inbox_position is not None else position
    return state._replace(
        tenant=envelope.tenant,
        status=state.status if status is None else status,
        turn=envelope.turn,
        lamport=max(state.lamport, envelope.lamport),
        events=state.events + 1,
        unknown=state.unknown + (event.body is None),
        irregular=state.irregular + irregular,
        inbox=inbox,
        inbox_position=position,
    )


def _put(mapping: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    return {**mapping, key: value}


def _drop(mapping: Mapping[K, V], key: K) -> Mapping[K, V]:
    return {k: v for k, v in mapping.items() if k != key}


def _move_call(state: State, call_id: str, step: str, **changes: Any) -> State:
    """Moves a call along its table; a step that has no place there is irregular and changes nothing else."""
    call = state.calls.get(call_id)
    after = None if call is None else CALL[call.status].get(step)
    if call is None or after is None:
        return state._replace(irregular=state.irregular + 1)
    if after is CallStatus.SETTLED:
        return state._replace(calls=_drop(state.calls, call_id))
    return state._replace(calls=_put(state.calls, call_id, call._replace(status=after, **changes)))


def _task_started(state: State, event: Event, body: ev.TaskStarted) -> State:
    task = Task(
        driver=body.driver,
        agent=body.agent,
        model=body.model,
        model_version=body.model_version,
        prompt=None if body.prompt_template is None else body.prompt_template.hash,
        tools=None if body.tool_schemas is None else body.tool_schemas.hash,
        labels=body.labels,
        source=body.source,
        swarm=body.swarm,
        parent=body.parent,
        origin=body.origin,
        conversation_id=body.conversation_id,
        on_behalf_of=body.on_behalf_of,
        code_version=body.code_version,
    )
    return state._replace(task=task)


def _context_built(state: State, event: Event, body: ev.ContextBuilt) -> State:
    context = apply_edits(state.context, body)
    irregular = state.irregular + (len(context) != body.messages)
    return state._replace(context=context, irregular=irregular)


def apply_edits(previous: tuple[MessageRef, ...], body: ev.ContextBuilt) -> tuple[MessageRef, ...]:
    """The message references after this context, from those before it."""
    out: list[MessageRef] = []
    cursor = 0
    for edit in body.edits:
        if edit.op is EditOp.ADD:
            out.extend(MessageRef(seq, edit.trajectory_id) for seq in edit.seqs)
            continue
        if edit.op is EditOp.KEEP:
            out.extend(previous[cursor : cursor + edit.count])
        cursor += edit.count
    return tuple(out)


def _model_replied(state: State, event: Event, body: ev.ModelReplied) -> State:
    spent = state.spent._replace(
        model_calls=state.spent.model_calls + 1,
        input_tokens=state.spent.input_tokens + body.usage.input_tokens,
        output_tokens=state.spent.output_tokens + body.usage.output_tokens,
        cost_micro_usd=state.spent.cost_micro_usd + (body.cost_micro_usd or 0),
    )
    calls = state.calls
    if body.tool_calls:
        turn = event.envelope.turn
        new = {call.call_id: Call(call.tool, CallStatus.PROPOSED, turn) for call in body.tool_calls}
        calls = {**calls, **new}
    return state._replace(spent=spent, calls=calls, model_served=body.model_served or state.model_served)


def _authorized(state: State, event: Event, body: ev.Authorized) -> State:
    return _move_call(state, body.call_id, step_of(event.name, body))


def _approval_requested(state: State, event: Event, body: ev.ApprovalRequested) -> State:
    return _move_call(
        state,
        body.call_id,
        event.name,
        request_hash=event.hash,
        may_approve=body.may_approve,
        expires_at=body.expires_at,
    )


def _approval_resolved(state: State, event: Event, body: ev.ApprovalResolved) -> State:
    call = state.calls.get(body.call_id)
    if call is not None and call.request_hash != body.request_hash:
        return state._replace(irregular=state.irregular + 1)
    return _move_call(state, body.call_id, step_of(event.name, body))


def _tool_intent(state: State, event: Event, body: ev.ToolIntent) -> State:
    moved = _move_call(
        state,
        body.call_id,
        event.name,
        seq=event.envelope.seq,
        hash=event.hash,
        effect=body.effect,
        place=body.place,
        idempotency_key=body.idempotency_key,
        key_ttl_ms=body.key_ttl_ms,
        not_after=body.not_after,
    )
    spent = moved.spent._replace(tool_calls=moved.spent.tool_calls + 1)
    return moved._replace(spent=spent, tools=_put(moved.tools, body.tool, moved.tools.get(body.tool, 0) + 1))


def _tool_result(state: State, event: Event, body: ev.ToolResult) -> State:
    moved = _move_call(state, body.call_id, event.name)
    return moved._replace(spent=moved.spent._replace(tool_ms=moved.spent.tool_ms + (body.duration_ms or 0)))


def _call_event(state: State, event: Event, body: ev.InDoubt | ev.Escalated) -> State:
    return _move_call(state, body.call_id, event.name)


def _checkpoint(state: State, event: Event, body: ev.CheckpointTaken) -> State:
    return state._replace(checkpoint_seq=body.seq_covered)


def _timer_set(state: State, event: Event, body: ev.TimerSet) -> State:
    due = body.due_turn if body.due_at is None else body.due_at
    return state._replace(timers=_put(state.timers, body.timer_id, due or 0))


def _timer_fired(state: State, event: Event, body: ev.TimerFired) -> State:
    return state._replace(timers=_drop(state.timers, body.timer_id))


def _annotated(state: State, event: Event, body: ev.Annotated) -> State:
    return state._replace(annotations=state.annotations + 1)


def _drift(state: State, event: Event, body: ev.DriftCrossed) -> State:
    if state.task is None:
        return state
    return state._replace(
        task=state.task._replace(
            model=body.new_model,
            prompt=body.new_prompt if body.new_prompt is not None else state.task.prompt,
            tools=body.new_tools if body.new_tools is not None else state.task.tools,
        )
    )


def _ended(state: State, event: Event, body: ev.TaskEnded) -> State:
    open_intents = bool(state.open_intents)
    return state._replace(reason=body.reason, irregular=state.irregular + open_intents)


_HANDLERS: Final[Mapping[type, Callable[[State, Event, Any], State]]] = {
    ev.TaskStarted: _task_started,
    ev.ContextBuilt: _context_built,
    ev.ModelReplied: _model_replied,
    ev.Authorized: _authorized,
    ev.ApprovalRequested: _approval_requested,
    ev.ApprovalResolved: _approval_resolved,
    ev.ToolIntent: _tool_intent,
    ev.ToolResult: _tool_result,
    ev.InDoubt: _call_event,
    ev.Escalated: _call_event,
    ev.CheckpointTaken: _checkpoint,
    ev.TimerSet: _timer_set,
    ev.TimerFired: _timer_fired,
    ev.Annotated: _annotated,
    ev.DriftCrossed: _drift,
    ev.TaskEnded: _ended,
}
