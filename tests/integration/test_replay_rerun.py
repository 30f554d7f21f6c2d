"""Recorded runs, run again live, replay clean: by their own agents, and by what their records say of them."""

from __future__ import annotations

import os

import pytest

from tests.support.airline import recordings
from tests.support.airline_service import service_process
from tests.support.memory_logs import make_topics
from tests.support.rerunning import agents_of, rerun
from tests.support.writing import read_accepted
from tracklog.consumers.trajectory_replay import Agents, replay_events
from tracklog.infra.blobs import BlobStore, open_blobs
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.memory import MemoryLog
from tracklog.infra.log.memory_store import MemoryStore
from tracklog.producers.producer import EventProducer
from tracklog.schemas import events as ev
from tracklog.schemas.topics import Topics

CHOSEN = recordings()[:8]
Ran = tuple[MemoryLog, BlobStore, str]


@pytest.fixture
async def ran() -> Ran:
    """Their service is gone when they are replayed."""
    clock = SystemClock()
    log, blobs = MemoryLog(MemoryStore(), now_ms=lambda: clock.now_us() // 1000), open_blobs("memory://")
    make_topics(log, "tracklog", 2)
    with service_process(dict(os.environ)) as url:
        async with EventProducer(log, topics=Topics(), clock=clock, entropy=SystemEntropy()) as producer:
            await rerun(log, producer, blobs, CHOSEN, url)
    return log, blobs, url


@pytest.mark.parametrize("own", [True, False])
async def test_runs_that_were_run_again_replay_clean(ran: Ran, own: bool) -> None:
    log, blobs, url = ran
    agents: Agents = agents_of(CHOSEN, url) if own else {}
    for recording in CHOSEN:
        events = read_accepted(log, recording.id)
        report = await replay_events(recording.id, events, (), agents, blobs)
        assert report.clean, report
        assert report.ended
        replies = [event for event in events if isinstance(event.body, ev.ModelReplied)]
        assert report.turns == len(replies) >= len(recording.replies)
