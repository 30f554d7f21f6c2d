"""Clients that record through the API: what they send, and processes of the API without HTTP in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.sessions import World
from tests.support.working import Works
from tracklog.consumers.ingest.admission import Author
from tracklog.consumers.ingest.given import Batch, Release, Start
from tracklog.consumers.ingest.ingest import Ingest, Recorded
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.memory import Faults, MemoryLog
from tracklog.infra.settings import IngestSettings
from tracklog.schemas.topics import Topics

__all__ = ["RUN", "Replica", "call_of", "ended", "replica", "said", "start", "turn"]

RUN = "run-1"
REPLICA = IngestSettings()
TOPICS = Topics()

Given = dict[str, Any]


def start(client: str = "ts", **fields: object) -> Given:
    return {"id": RUN, "client": client, "agent": "traveller", "task": "book a trip", **fields}


def said(text: str = "book a trip") -> Given:
    return {"type": "MessageReceived", "role": "user", "message": text}


def call_of(call_id: str) -> Given:
    return {"id": call_id, "type": "function", "function": {"name": "search", "arguments": '{"to":"Oslo"}'}}


def turn(call_id: str) -> list[Given]:
    """One turn with one call."""
    intent = {"type": "ToolIntent", "call_id": call_id, "tool": "search", "effect": "readonly"}
    return [
        {"type": "ContextBuilt"},
        {
            "type": "ModelReplied",
            "reply": {"role": "assistant", "content": None, "tool_calls": [call_of(call_id)]},
            "usage": {"input_tokens": 10, "output_tokens": 2},
        },
        {"type": "Authorized", "call_id": call_id, "ruling": "allow"},
        {**intent, "arguments": '{"to":"Oslo"}'},
        {"type": "ToolResult", "call_id": call_id, "status": "ok", "output": f"found {call_id}"},
    ]


def ended() -> list[Given]:
    return [
        {"type": "ContextBuilt"},
        {"type": "ModelReplied", "reply": {"role": "assistant", "content": "done"}},
        {"type": "TaskEnded", "ending": "completed", "result": "done"},
    ]


class Replica:
    """One process of the API, for clients of one person."""

    def __init__(self, log: MemoryLog, ingest: Ingest, person: str = "ada", tenants: tuple[str, ...] = ("default",)):
        self.log = log
        self.ingest = ingest
        self.person = person
        self.tenants = tenants

    async def start(self, given: Given) -> Recorded:
        return await self.ingest.start(self._author(given["client"]), Start.model_validate(given))

    async def append(self, first: int, events: list[Given], client: str = "ts", **fields: object) -> Recorded:
        given = {"client": client, "first": first, "events": events, **fields}
        found = await self.ingest.append(self._author(client), RUN, Batch.model_validate(given))
        assert found is not None
        return found

    async def release(self, client: str = "ts") -> bool:
        return await self.ingest.release(self._author(client), RUN, Release(client=client))

    def _author(self, client: str) -> Author:
        return Author(f"{self.person}/{client}", lambda tenant: tenant in self.tenants)


@asynccontextmanager
async def replica(
    world: World | Works, settings: IngestSettings = REPLICA, faults: Faults | None = None, topics: Topics = TOPICS
) -> AsyncIterator[Replica]:
    log = world.new_log()
    log.faults = faults
    ingest = Ingest(
        log,
        topics,
        world.blobs,
        clock=world.log_clock if isinstance(world, World) else SystemClock(),
        entropy=SystemEntropy(),
        settings=settings,
    )
    yield Replica(log, ingest)
    await ingest.close()
    log.close()
