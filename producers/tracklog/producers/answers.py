"""A person's word on a call: it goes into the inbox, as everything that anyone but the owner says (DESIGN §8, §9).

What is asked about is looked up in the log: the intent that may have happened, or the request of a held call. The
record quotes its hash, so it answers that and nothing else. Said twice, it is the same record; the session takes the
first word on a call and refuses others.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping

import orjson

from tracklog.infra.blobs import BlobStore
from tracklog.infra.clock import Clock, SystemClock
from tracklog.infra.log.port import Log, Position
from tracklog.producers.edits import misfit
from tracklog.producers.history import Histories
from tracklog.producers.post import Poster
from tracklog.producers.record import JSON, TEXT
from tracklog.producers.retrying import EXT_RETRY
from tracklog.producers.taking import requester_of
from tracklog.schemas.approvals import Approver, Request, may_not, who_may
from tracklog.schemas.codec import Framing, single_object
from tracklog.schemas.errors import InputError, InvalidEvent, NotApprover
from tracklog.schemas.inbox import Decision, InboxBody, Settlement
from tracklog.schemas.lifecycle import CallStatus, TrajectoryStatus
from tracklog.schemas.limits import BODY_INLINE_BYTES_MAX
from tracklog.schemas.redaction import Redaction
from tracklog.schemas.state import Call, State
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Body, Choice, InboxId, ResultStatus

__all__ = ["Answers"]


class Answers:
    """Of one process. Who `person` or `who` really is must be known to whoever calls these."""

    def __init__(
        self,
        log: Log,
        topics: Topics | None = None,
        *,
        clock: Clock | None = None,
        framing: Framing = single_object,
        blobs: BlobStore | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        """With `blobs`, edited arguments are compared with the recorded schema of their tool before they are posted."""
        self._blobs = blobs
        topics = topics if topics is not None else Topics()
        self._histories = Histories(log, topics.events)
        clock = clock if clock is not None else SystemClock()
        self._clock = clock
        self._poster = Poster(log, topics, clock=clock, framing=framing, redaction=redaction)

    async def settle(
        self,
        trajectory_id: str,
        call_id: str,
        *,
        person: str,
        happened: bool,
        output: str,
        reason: str = "",
        intent_hash: bytes | None = None,
    ) -> Position:
        """Whether a call happened that nobody but a person can find out about; `output` is given to the model.
        `intent_hash` is of the intent that is meant; None for the one that is open now. Returns where that is in the
        inbox topic.

        Raises InvalidEvent for a call that nobody was asked about, for another intent than is open, and what
        `Poster.post` raises.
        """
        state, call = await self._escalated(trajectory_id, call_id, intent_hash)
        body = Settlement(
            call_id=call_id,
            intent_hash=call.hash,
            by=person,
            status=ResultStatus.OK if happened else ResultStatus.EXPIRED,
            output=Body.of(output, TEXT),
            reason=reason,
        )
        return await self._post(state, body, person)

    async def retry(
        self, trajectory_id: str, call_id: str, *, person: str, reason: str = "", intent_hash: bytes | None = None
    ) -> Position:
        """Has a call done again that may have happened: twice, then. Raises as `settle`."""
        state, call = await self._escalated(trajectory_id, call_id, intent_hash)
        body = Settlement(
            call_id=call_id,
            intent_hash=call.hash,
            by=person,
            status=ResultStatus.UNKNOWN,
            output=Body.of("", TEXT),
            reason=reason,
        )
        return await self._post(state, body, person, {EXT_RETRY: "true"})

    async def _escalated(self, trajectory_id: str, call_id: str, intent_hash: bytes | None) -> tuple[State, Call]:
        state = await self._state(trajectory_id)
        call = state.calls.get(call_id)
        if call is None or call.status is not CallStatus.ESCALATED:
            raise InvalidEvent(
                f"call {call_id!r} of trajectory {trajectory_id!r} is {_stands(call)}; nobody was asked about it",
                hint="`tracklog escalations list` names calls that wait for a person; what else is open is settled by"
                f" whoever runs the trajectory: `tracklog show {trajectory_id}` says how it stands",
            )
        if intent_hash is not None and intent_hash != call.hash:
            raise InvalidEvent(
                f"call {call_id!r} of trajectory {trajectory_id!r} was made again since, and is in doubt anew",
                hint="say what became of that one: it has a link of its own",
            )
        return state, call

    async def answer(
        self,
        trajectory_id: str,
        call_id: str,
        *,
        who: Approver,
        choice: Choice,
        reason: str = "",
        answer: str | None = None,
        arguments: str | None = None,
        request_hash: bytes | None = None,
    ) -> Position:
        """Approves a held call, denies it (`reason` is given to the model), answers in its place, or edits its
        `arguments` (a JSON object, all of them), which are then ruled on anew.

        `who` is from a credential, never from what was sent. `request_hash` is of the request that is answered; None
        for the one that is open now. The same answer again is the same record; the first one in the inbox counts.

        Raises InputError for an answer or arguments without their choice and for arguments that are no JSON object,
        NotApprover for somebody who may not decide, InvalidEvent for a call that waits for nobody, another request than
        is open, one that has expired and arguments that the recorded tool does not take, and what `Poster.post` raises.
        """
        _check_words(choice, answer, arguments)
        state = await self._state(trajectory_id)
        call = state.calls.get(call_id)
        if call is None or call.status is not CallStatus.ASKED or call.request is None:
            raise InvalidEvent(
                f"call {call_id!r} of trajectory {trajectory_id!r} is {_stands(call)}; it waits for no decision",
                hint=f"see: tracklog show {trajectory_id}",
            )
        if state.status is TrajectoryStatus.CANCELLING:
            raise InvalidEvent(f"trajectory {trajectory_id!r} is being cancelled; no call of it is made any more")
        self._check_request(f"call {call_id!r} of {trajectory_id!r}", state, call.request, who, request_hash)
        if arguments is not None:
            await self._check_fits(state, call, arguments)
        body = Decision(
            call_id=call_id,
            request_hash=call.request.hash,
            approver=who.name,
            choice=choice,
            reason=reason,
            answer=None if answer is None else Body.of(answer, TEXT),
            arguments=None if arguments is None else Body.of(arguments, JSON),
        )
        return await self._post(state, body, who.name, who.ext)

    def _check_request(
        self, call: str, state: State, request: Request, who: Approver, request_hash: bytes | None
    ) -> None:
        """The taker judges all of this again: what is told here is only told sooner."""
        terms = request.may_approve, request.requester_may
        wrong = may_not(*terms, who, tenant=state.tenant, requester=requester_of(state))
        if wrong:
            raise NotApprover(
                f"{who.name!r} may not decide about {call}: {wrong}",
                hint=f"those who may are: {who_may(request.may_approve)}",
            )
        if request_hash is not None and request_hash != request.hash:
            raise InvalidEvent(
                f"another request about {call} is open than the one that is answered",
                hint="its arguments were edited or others are asked by now; look at the one that is open",
            )
        if request.expires_at is not None and request.expires_at <= self._clock.now_us():
            then = f"then asks {who_may(request.then[0].may_approve)}" if request.then else "then tells the model"
            raise InvalidEvent(f"the request to approve {call} has expired", hint=f"whoever runs it {then}")

    async def _check_fits(self, state: State, call: Call, arguments: str) -> None:
        schemas = None if state.task is None else state.task.tools
        if self._blobs is None or schemas is None:
            return
        wrong = await asyncio.to_thread(misfit, self._blobs, schemas, call.tool, arguments)
        if wrong:
            raise InputError(
                f"tool {call.tool!r} does not take these arguments: {wrong}", hint="give all that it takes"
            )

    async def _state(self, trajectory_id: str) -> State:
        return (await self._histories.read(trajectory_id))[0]

    async def _post(self, state: State, body: InboxBody, person: str, ext: Mapping[str, str] | None = None) -> Position:
        said = hashlib.sha256(repr(body).encode("utf-8", "replace")).hexdigest()[:16]
        inbox_id = InboxId(source=f"{person}/{said}", seq=0)
        return await self._poster.post(state.trajectory_id, body, inbox_id=inbox_id, tenant=state.tenant, ext=ext)


def _check_words(choice: Choice, answer: str | None, arguments: str | None) -> None:
    if (choice is Choice.ANSWER) != (answer is not None) or (choice is Choice.EDIT) != (arguments is not None):
        raise InputError(
            f"the choice {choice.value!r} with {'an answer' if answer is not None else 'no answer'} and "
            f"{'arguments' if arguments is not None else 'no arguments'}",
            hint="give an answer with the choice answer, arguments with the choice edit, and only then",
        )
    for name, text in (("answer", answer), ("arguments", arguments)):
        if text is not None and len(text.encode()) > BODY_INLINE_BYTES_MAX:
            raise InputError(f"the {name} are above {BODY_INLINE_BYTES_MAX} bytes", hint="shorten what is decided")
    if arguments is None:
        return
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError as error:
        raise InputError(f"the arguments are not JSON: {error}", hint='give an object, such as {"amount":3}') from error
    if not isinstance(value, dict):
        raise InputError("the arguments are no JSON object", hint='give an object, such as {"amount":3}')


def _stands(call: Call | None) -> str:
    return "not open" if call is None else call.status.value
