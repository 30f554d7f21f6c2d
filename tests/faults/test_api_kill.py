"""The API killed after something is durable in an inbox and before it answers; asked again, it is taken once."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.replicas import Served, replicas
from tests.support.sessions import ScriptedModel, asks, says
from tests.support.worker_process import PARTITIONS
from tests.support.writing import read_accepted
from tracklog.consumers.wiring import blobs_of, opened_log, producer_of
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.ranges import read_range
from tracklog.infra.settings import Settings, load_settings
from tracklog.producers.opening import opened
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.tools import ToolSet, tool
from tracklog.producers.turn import Agent, run_turns
from tracklog.schemas import events as ev
from tracklog.schemas.codec import decode_inbox
from tracklog.schemas.errors import ApprovalNeeded

PREFIX: Final = "killed"
RUN: Final = "trip-1"
POLICY: Final = PolicyFile(b'default = "hold"\n', "policy.toml")


@tool(effect="readonly")
def look(what: str) -> str:
    return f"saw {what}"


async def run(settings: Settings) -> None:
    """To the call that is held, and past it when somebody has decided."""
    model = ScriptedModel(asks(("call-1", "look")), says("done"))
    agent = Agent("traveller", model, ToolSet.of(look), POLICY)
    with opened_log(settings, make_topics=True) as log:
        async with producer_of(settings, log) as producer:
            setup = agent.setup("a trip", blobs_of(settings))
            async with opened(producer, RUN, log=log, setup=setup, topics=settings.topic_names) as session:
                await run_turns(session, agent, setup.task)


def killed_and_asked_again(server: Served, path: str, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    server.kill_next()
    with pytest.raises((OSError, http.client.HTTPException)):
        server.post(path, data)
    server.until_up()
    for _ in range(2):
        assert server.post(path, data)[0] == 202


def posted(settings: Settings) -> list[tuple[str, str, int]]:
    """(kind, source, sequence) of everything in the inbox of the run."""
    topic = settings.topic_names.inbox
    with opened_log(settings) as log:
        partition = partition_of(RUN.encode(), log.partition_count(topic))
        bounds = log.bounds(topic, partition)
        records = list(read_range(log, topic, partition, bounds.first, bounds.end))
    decoded = [decode_inbox(one.key, one.value, one.headers) for one in records]
    return [(one.name, one.envelope.source, one.envelope.source_seq) for one in decoded]


@pytest.mark.faults
@pytest.mark.timeout(300)
async def test_what_was_durable_when_it_died_is_taken_once(redis_db: str, tmp_path: Path) -> None:
    flags = {
        "log": f"sqlite:{tmp_path / 'log.db'}",
        "prefix": PREFIX,
        "blobs": str(tmp_path / "blobs"),
        "topics.partitions": PARTITIONS,
    }
    settings = load_settings(flags=flags, environ={}, cwd=tmp_path)
    with pytest.raises(ApprovalNeeded):
        await run(settings)
    with replicas(settings.log.url, PREFIX, redis_db, tmp_path, count=1) as (server,):
        judged = {"client_id": "judge-1", "name": "score", "value": "0.5"}
        killed_and_asked_again(server, f"/trajectories/{RUN}/annotations", judged)
        killed_and_asked_again(server, f"/trajectories/{RUN}/calls/call-1/decision", {"choice": "approve"})
        killed_and_asked_again(server, f"/trajectories/{RUN}/messages", {"client_id": "m-1", "text": "monday"})
        # given that the inbox has each of them three times, and then the run goes on
        found = posted(settings)
        assert [kind for kind, _, _ in found] == ["Annotation"] * 3 + ["Decision"] * 3 + ["Message"] * 3
        assert len(set(found)) == 3
        await run(settings)
        # and it is judged after its end, by a server that dies again
        late = {"client_id": "judge-2", "name": "score", "value": "0.9"}
        killed_and_asked_again(server, f"/trajectories/{RUN}/annotations", late)
    with opened_log(settings) as log:
        events = [event.body for event in read_accepted(log, RUN, prefix=PREFIX)]
    judgements = [one for one in events if isinstance(one, ev.Annotated)]
    assert [(one.client_id, one.value.text) for one in judgements] == [("judge-1", "0.5"), ("judge-2", "0.9")]
    assert sum(isinstance(one, ev.ApprovalResolved) for one in events) == 1
    assert not any(isinstance(one, ev.InboxRefused) for one in events)
