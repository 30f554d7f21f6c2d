"""Whoever speaks to trajectories from outside: people who approve, settle, cancel and send messages; jobs that end."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final, cast

from tests.simulation.log import SimLog, Store
from tests.simulation.loop import SimLoop
from tests.simulation.owner import APPROVERS, EDITED
from tests.simulation.said import Request
from tests.simulation.scenario import Scenario
from tests.simulation.truth import TOPICS, Call
from tracklog.infra.log.port import Log
from tracklog.producers.post import Poster
from tracklog.schemas.errors import AppendUnknown
from tracklog.schemas.inbox import Cancel, Decision, InboxBody, Message, Outcome, Settlement
from tracklog.schemas.values import Body, Choice, InboxId, ResultStatus, Role, Settled

HEARD_WITHIN_S: Final = 30.0
"""A message comes for each that is waited for, within so many seconds of the start."""


class People:
    def __init__(self, loop: SimLoop, store: Store, scenario: Scenario, told: Any) -> None:
        self._loop, self._store, self._scenario, self._told = loop, store, scenario, told

    def begin(self) -> None:
        for n, seconds in self._scenario.cancels:
            self._loop.later(seconds, self._say, f"t{n}", Cancel(by="person"), InboxId(source=f"cancel/{n}", seq=0))
        for n, turns in enumerate(self._scenario.work):
            for number in range(sum(items.count("receive") for items in turns)):
                body = Message(peer="person", role=Role.USER, message=Body.of(f"message {number}"))
                said_s = self._loop.chance.uniform(0.0, HEARD_WITHIN_S)
                self._loop.later(said_s, self._say, f"t{n}", body, InboxId(source=f"person/{number}", seq=0))

    def escalated(self, call: Call) -> None:
        if self._scenario.person:
            self._loop.later(self._loop.chance.choice((0.0, 2.0, 60.0)), self._settle, call)

    def asked(self, request: Request) -> None:
        """Each says a word about it, some after another has; a request after an edit is not edited again."""
        people = APPROVERS[request.round > 1]
        for number, (seconds, word) in enumerate(self._scenario.approvers):
            choice = Choice.APPROVE if word == "edit" and request.round > 1 else Choice(word)
            body = Decision(
                call_id=request.call_id,
                request_hash=request.hash,
                approver=people[number % 2],
                choice=choice,
                answer=Body.of("an answer") if choice is Choice.ANSWER else None,
                arguments=Body.of(EDITED) if choice is Choice.EDIT else None,
            )
            source = f"{body.approver}/{sha256(repr(body).encode()).hexdigest()[:16]}"
            self._loop.later(seconds, self._say, request.trajectory_id, body, InboxId(source=source, seq=0))

    def job_ended(self, call: Call, status: ResultStatus, number: int) -> None:
        body = Outcome(
            call_id=call.name,
            intent_hash=call.hash,
            slot=1,
            status=status,
            output=Body.of("done later"),
            settled=Settled.DIRECT,
        )
        self._say(call.trajectory_id, body, InboxId(source=f"outcome/{number}", seq=0))

    def _settle(self, call: Call) -> None:
        """A person looks whether it happened, and says so."""
        status = ResultStatus.OK if call.effects else ResultStatus.EXPIRED
        body = Settlement(call_id=call.name, intent_hash=call.hash, by="person", status=status, output=Body.of(""))
        self._told(f"a person settles {call.name}: {status.value}")
        self._say(call.trajectory_id, body, InboxId(source=f"person/{call.name}", seq=0))

    def _say(self, trajectory_id: str, body: InboxBody, inbox_id: InboxId) -> None:
        self._loop.create_task(self._post(trajectory_id, body, inbox_id), context=self._loop.world.context)

    async def _post(self, trajectory_id: str, body: InboxBody, inbox_id: InboxId) -> None:
        poster = Poster(cast(Log, SimLog(self._store)), TOPICS, clock=self._loop.world)
        while True:
            try:
                await poster.post(trajectory_id, body, inbox_id=inbox_id)
                return
            except AppendUnknown:
                continue
