"""Recorded runs to import, and what an import left in the log, in a form that can be compared."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tracklog.infra.blobs import BlobStore
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range
from tracklog.producers.data import shipped_file, shipped_files
from tracklog.producers.importers.chat import parse_chat_jsonl
from tracklog.producers.importers.drive import import_runs, log_history
from tracklog.producers.importers.plan import PlannedEvent, located, plan
from tracklog.producers.importers.report import ImportReport
from tracklog.producers.importers.run import BadRun, Run
from tracklog.producers.producer import EventProducer
from tracklog.schemas.codec import Event, decode_event, encode_event
from tracklog.schemas.events import ContextBuilt, EventBody, OwnershipClaimed
from tracklog.schemas.fold import fold
from tracklog.schemas.head import Verdict
from tracklog.schemas.stamp import Stamp, trajectory_prefix
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import ZERO_HASH, Driver, InboxId, Ref


def chat_record(**changes: Any) -> dict[str, Any]:
    """A small run of two turns and one call, as a JSON object."""
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q":"Zürich"}'}}
    record: dict[str, Any] = {
        "id": "run-1",
        "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "find it"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "here it is"},
            {"role": "assistant", "content": "found"},
            {"role": "user", "content": "thanks"},
        ],
    }
    return {**record, **changes}


def chat_line(record: object) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def chat_run(**changes: Any) -> Run:
    """The small run, read."""
    (run,) = parse_chat_jsonl([chat_line(chat_record(**changes))], "small.jsonl")
    assert isinstance(run, Run), str(run)
    return run


def recorded_objects() -> list[dict[str, Any]]:
    """The shipped records as plain JSON, in the order of `shipped_runs`, read without the importers."""
    objects = []
    for name in shipped_files():
        data = shipped_file(name)
        texts = data.splitlines() if name.endswith(".jsonl") else [data]
        objects += [json.loads(text) for text in texts]
    return objects


def events_of_plan(run: Run, blobs: BlobStore) -> list[Event]:
    """The events that an import of the run would write, encoded and decoded, without a log."""
    claim = OwnershipClaimed(owner="importer", nonce=bytes(16), driver=Driver.IMPORT)
    steps = [PlannedEvent(claim, 0), *plan(run)]
    seqs = range(1, len(steps))
    events, previous = [], ZERO_HASH
    for seq, planned in enumerate(steps):
        for text, media_type in planned.stores:
            blobs.put(text.encode(), media_type=media_type)
        stamp = Stamp(
            run.trajectory_id,
            trajectory_prefix(run.trajectory_id, "default"),
            seq=seq,
            epoch=min(seq, 1),
            turn=planned.turn,
            lamport=seq + 1,
            recorded_at=0,
            prev_hash=previous,
            causes=tuple(Ref(trajectory_id=run.trajectory_id, seq=seqs[step]) for step in planned.causes),
            inbox_id=None if seq == 0 else InboxId(source=f"import:{run.source[:16]}", seq=seq - 1),
            ext=planned.ext,
        )
        encoded = encode_event(stamp, located(planned.body, seqs))
        previous = encoded.hash
        events.append(decode_event(run.trajectory_id.encode(), encoded.value, encoded.headers))
    return events


async def import_all(
    log: Log,
    producer: EventProducer,
    blobs: BlobStore,
    runs: Iterable[Run | BadRun],
    prefix: str = "tracklog",
    **more: Any,
) -> ImportReport:
    history = log_history(log, Topics(prefix).events)
    return await import_runs(producer, blobs, runs, history=history, **more)


def accepted_events(log: Log, prefix: str = "tracklog") -> dict[str, list[Event]]:
    """The accepted events of every trajectory, by one scan of the topic."""
    topic = Topics(prefix).events
    states: dict[str, State] = {}
    found: dict[str, list[Event]] = {}
    for partition in range(log.partition_count(topic)):
        bounds = log.bounds(topic, partition)
        for record in read_range(log, topic, partition, bounds.first, bounds.end):
            event = decode_event(record.key, record.value, record.headers)
            key = event.envelope.trajectory_id
            states[key], judgement = fold(states.get(key, State(key)), event)
            if judgement.verdict is Verdict.ACCEPTED:
                found.setdefault(key, []).append(event)
    return found


def assert_in_once(log: Log, runs: Iterable[Run], prefix: str = "tracklog") -> None:
    """Every step of every run is in the log, in order, as planned, and none is there twice."""
    events = accepted_events(log, prefix)
    for run in runs:
        assert work_of(events[run.trajectory_id]) == planned_work(run), run.trajectory_id


Work = list[tuple[int, int, tuple[int, ...], dict[str, str], EventBody]]


def work_of(events: Iterable[Event]) -> Work:
    """The imported steps: number, turn, causes, shape, body; references as step numbers instead of seqs.

    So two imports are the same work whatever claims and releases lie between their steps. Fails when a step
    is there twice, or missing.
    """
    steps = [event for event in events if event.envelope.inbox_id is not None]
    number_of = {event.envelope.seq: number for number, event in enumerate(steps)}
    work: Work = []
    for number, event in enumerate(steps):
        envelope, body = event.envelope, event.body
        assert envelope.inbox_id is not None
        assert envelope.inbox_id.seq == number, f"step {envelope.inbox_id.seq} stands at {number}"
        assert body is not None
        causes = tuple(number_of[ref.seq] for ref in envelope.causes)
        work.append((number, envelope.turn, causes, dict(envelope.ext), _by_steps(body, number_of)))
    return work


def _by_steps(body: EventBody, number_of: dict[int, int]) -> EventBody:
    if not isinstance(body, ContextBuilt):
        return body
    table = [0] * (max(number_of) + 1)
    for seq, number in number_of.items():
        table[seq] = number
    return located(body, table)


def planned_work(run: Run) -> Work:
    """What `work_of` must give for a complete import with no body in the blob store."""
    return [(n, p.turn, p.causes, dict(p.ext), p.body) for n, p in enumerate(plan(run))]
