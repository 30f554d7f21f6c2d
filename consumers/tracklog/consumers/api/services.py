"""What the routes rest on: the log, Redis, and who is asking."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final

import orjson
from fastapi import HTTPException

from tracklog.consumers.api.counting import Counting
from tracklog.consumers.api.limits import RateLimit
from tracklog.consumers.api.oidc import KeysUnavailable, Oidc, TokenRefused, is_signed
from tracklog.consumers.api.relay import Hub
from tracklog.consumers.api.tokens import Principal, Role, TokenFile
from tracklog.consumers.ingest.ingest import Ingest
from tracklog.consumers.observing.projection_age import ProjectionAge
from tracklog.consumers.read import Answer, AsOf, Reader
from tracklog.consumers.read_live import LOG
from tracklog.infra.blobs import BlobStore
from tracklog.infra.clock import Clock, SystemEntropy
from tracklog.infra.health import Health
from tracklog.infra.lines import AUDIT
from tracklog.infra.log.partitioner import partition_of
from tracklog.infra.log.port import Log
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.settings import Settings
from tracklog.producers.answers import Answers
from tracklog.producers.client import Client
from tracklog.producers.history import read_history
from tracklog.producers.post import Poster
from tracklog.producers.producer import EventProducer
from tracklog.producers.whereabouts import Whereabouts
from tracklog.schemas.codec import Framing, single_object
from tracklog.schemas.errors import ClientFatal, ReadBehind, StoreError
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import check_trajectory_id

__all__ = ["Services"]

audit: Final = logging.getLogger(AUDIT)


@dataclass(slots=True)
class Services:
    """Of one process. Neither `tokens` nor `oidc`: no one is asked who they are, and everybody may do everything
    (loopback only)."""

    log: Log
    topics: Topics
    client: RedisClient
    blobs: BlobStore
    clock: Clock
    tokens: TokenFile | None
    rate: RateLimit
    streams_max: int
    framing: Framing = single_object
    settings: Settings = field(default_factory=Settings)
    oidc: Oidc | None = None
    streams: int = 0
    stopping: bool = False
    """The server goes away: streams end, and their clients connect again elsewhere."""
    fatal: ClientFatal | None = None
    """The client of the log gave up while it answered: nothing more can be answered, and the process must end."""
    counting: Counting | None = None
    health: Health = field(init=False)
    reader: Reader = field(init=False)
    age: ProjectionAge = field(init=False)
    ingest: Ingest = field(init=False)
    redaction: Redaction | None = field(init=False)
    hub: Hub = field(init=False)
    poster: Poster = field(init=False)
    answers: Answers = field(init=False)

    def __post_init__(self) -> None:
        redaction = self.redaction = self.settings.redaction.before_append()
        self.ingest = Ingest(
            self.log,
            self.topics,
            self.blobs,
            clock=self.clock,
            entropy=SystemEntropy(),
            settings=self.settings.ingest,
            writer=self.settings.writer,
            framing=self.framing,
            body_inline_bytes_max=self.settings.blobs.body_inline_bytes_max,
            redaction=redaction,
        )
        self.reader = Reader(self.client, prefix=self.topics.prefix, log=self.log)
        self.age = ProjectionAge(self.log, self.client, self.topics, self.clock)
        self.health = Health(self.settings.health, self.clock)
        self.health.needs(self._tokens_are_read)
        self.health.needs(lambda: self.log.ping(self.settings.health.ping_timeout_s))
        self.health.needs(lambda: self.age.problem(self.settings.health.projection_age_s_max))
        self.hub = Hub(self.client, self.topics.prefix)
        self.poster = Poster(self.log, self.topics, clock=self.clock, framing=self.framing, redaction=redaction)
        self.answers = Answers(
            self.log, self.topics, clock=self.clock, framing=self.framing, blobs=self.blobs, redaction=redaction
        )

    def _tokens_are_read(self) -> str | None:
        problem = None if self.tokens is None else self.tokens.problem
        return f"tokens are as they were before: {problem}" if problem else None

    def client_of(self, principal: Principal, tenant: str) -> Client:
        return Client(
            self.log,
            self.topics,
            blobs=self.blobs,
            by=principal.name,
            tenant=tenant,
            clock=self.clock,
            framing=self.framing,
            redaction=self.redaction,
        )

    def new_producer(self) -> EventProducer:
        """For what is written here and now, into a trajectory that nobody runs."""
        return EventProducer(
            self.log,
            topics=self.topics,
            clock=self.clock,
            entropy=SystemEntropy(),
            settings=self.settings.writer,
            framing=self.framing,
            redaction=self.redaction,
        )

    async def principal(self, authorization: str | None) -> Principal:
        """Raises HTTPException: 401 without a token that is known, 403 for one without a role or tenant, 429 above the
        rate, 503 while nobody can say whether it holds."""
        if self.tokens is None and self.oidc is None:
            return Principal("local", frozenset(Role), frozenset(("*",)))
        scheme, _, token = (authorization or "").partition(" ")
        found = await self._of_token(token.strip()) if scheme.lower() == "bearer" and token else None
        if found is None:
            raise _unknown("a bearer token that is known here is needed")
        wait_s = self.rate.wait_s(found.name)
        if wait_s > 0:
            raise HTTPException(429, "too many requests", {"Retry-After": str(max(1, round(wait_s)))})
        return found

    async def _of_token(self, token: str) -> Principal | None:
        if self.oidc is None or not is_signed(token):
            return None if self.tokens is None else self.tokens.principal(token)
        try:
            return await self.oidc.principal(token)
        except TokenRefused as error:
            raise HTTPException(403, str(error)) if error.known else _unknown(str(error)) from None
        except KeysUnavailable:
            said = "the provider of this token does not show its keys: nobody can say whether it holds"
            raise HTTPException(503, said, {"Retry-After": "30"}) from None

    async def state(self, principal: Principal, trajectory_id: str) -> State:
        """As `answer`, the state alone."""
        return (await self.answer(principal, trajectory_id, self.reader)).value

    async def answer(self, principal: Principal, trajectory_id: str, reader: Reader) -> Answer[State]:
        """As Redis has it, or the log when Redis has not seen it yet.

        Raises HTTPException 404 for one that is not there, or another tenant's; ReadBehind.
        """
        check_trajectory_id(trajectory_id)
        found = await self._folded(reader, trajectory_id)
        if found is None:
            partition = partition_of(trajectory_id.encode(), self.log.partition_count(self.topics.events))
            end = (await asyncio.to_thread(self.log.bounds, self.topics.events, partition)).end
            found = Answer(await self.state_in_log(trajectory_id), AsOf(LOG, {partition: end}))
        if found.value.head.seq < 0 or not principal.sees(found.value.tenant):
            raise HTTPException(404, f"there is no trajectory {trajectory_id!r}")
        return found

    async def known(self, principal: Principal, trajectory_id: str) -> Whereabouts | None:
        """Where it stands as Redis has it; None for one that is not folded, or another tenant's. Costs no reading."""
        found = await self._folded(self.reader, check_trajectory_id(trajectory_id))
        return Whereabouts(found.value) if found is not None and principal.sees(found.value.tenant) else None

    async def _folded(self, reader: Reader, trajectory_id: str) -> Answer[State] | None:
        try:
            found = await reader.state(trajectory_id)
        except ReadBehind:
            raise
        except StoreError:
            return None
        return None if found.value is None else Answer(found.value.state, found.as_of)

    async def state_in_log(self, trajectory_id: str) -> State:
        """As the log has it now; it costs a reading of its partition."""
        return await asyncio.to_thread(self._read, trajectory_id)

    def _read(self, trajectory_id: str) -> State:
        return read_history(self.log, self.topics.events, trajectory_id)[0]

    def note(self, principal: Principal, what: str, trajectory_id: str, detail: str = "") -> None:
        """Who did what, in a line of the audit log; what was said is in the record of the trajectory too."""
        said = {"at_us": self.clock.now_us(), "who": principal.name, "what": what, "trajectory": trajectory_id}
        audit.info("%s", orjson.dumps({**said, "detail": detail}).decode())


def _unknown(reason: str) -> HTTPException:
    return HTTPException(401, reason, {"WWW-Authenticate": "Bearer"})
