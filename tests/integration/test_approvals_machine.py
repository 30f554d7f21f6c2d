"""A Hypothesis state machine over session, router and people: whatever comes in whatever order, a request has one end.

`tests/support/approving.py` says what must hold. The planted faults show that it would be seen if it did not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.support.approving import CALLS, EDIT, PEOPLE, UNFIT, Approving
from tracklog.consumers.routing import router
from tracklog.infra.redis_client import RedisClient, connect
from tracklog.processors.agenda import DUE
from tracklog.producers import approvals, opening, taking
from tracklog.producers.approvals import EXPIRY
from tracklog.producers.pen import WriterPen
from tracklog.schemas import events as ev
from tracklog.schemas import inbox
from tracklog.schemas.approvals import Approver, escalated
from tracklog.schemas.lifecycle import TrajectoryStatus
from tracklog.schemas.values import Body, Choice, InboxId

EXAMPLES: Final = int(os.environ.get("TRACKLOG_TEST_EXAMPLES", "6"))
STEPS: Final = 25
TURNS: Final = 2
HUNT: Final = settings(
    max_examples=60,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)

calls = st.sampled_from([*(f"{name}0" for name in CALLS * 2), *(f"{name}1" for name in CALLS)])
people = st.sampled_from([*PEOPLE, *(one for one in PEOPLE for _ in one.may)])
choices = st.sampled_from([Choice.APPROVE, Choice.APPROVE, Choice.DENY, Choice.EDIT, Choice.EDIT, Choice.ANSWER])
edits = st.sampled_from([EDIT, UNFIT])


class Machine(RuleBasedStateMachine):
    client: RedisClient

    def __init__(self) -> None:
        super().__init__()
        self.held = Approving(self.client, TURNS)
        self.seen: list[bytes] = [bytes(32)]
        self.ended = False
        self.held.open()

    def going(self) -> bool:
        return not self.ended

    @precondition(going)
    @rule(die_at=st.none() | st.none() | st.integers(0, 12))
    def open(self, die_at: int | None) -> None:
        """The program runs, and is killed at an append perhaps."""
        self.ended = self.held.open(die_at)

    @precondition(going)
    @rule(call=calls, person=people, choice=choices, edit=edits)
    def decide(self, call: str, person: Any, choice: Choice, edit: str) -> None:
        self.held.decide(call, person, choice, edit)

    @precondition(going)
    @rule(call=calls, person=people, choice=choices, edit=edits, which=st.integers(0, 30), current=st.booleans())
    def decide_past_the_door(
        self, call: str, person: Any, choice: Choice, edit: str, which: int, *, current: bool
    ) -> None:
        """About the request that is open, an earlier one, another call's, or before there is one."""
        now = self.held.request(call)
        self.seen += [now] if now is not None and now not in self.seen else []
        body = inbox.Decision(
            call_id=call,
            request_hash=now if now is not None and current else self.seen[which % len(self.seen)],
            approver=person.who.name,
            choice=choice,
            arguments=Body.of(edit) if choice is Choice.EDIT else None,
            answer=Body.of("by hand") if choice is Choice.ANSWER else None,
        )
        self.held.post(body, person.who)

    @precondition(going)
    @rule(call=calls)
    def say_that_it_expired(self, call: str) -> None:
        now = self.held.request(call)
        if now is not None:
            body = inbox.Decision(call_id=call, request_hash=now, approver=EXPIRY, choice=Choice.EXPIRE)
            self.held.post(body, Approver(EXPIRY))

    @precondition(going)
    @rule(number=st.integers(0, 50))
    def redeliver(self, number: int) -> None:
        self.held.redeliver(number)

    @precondition(going)
    @rule(seconds=st.sampled_from([1, 29, 31, 61, 130]), ahead=st.sampled_from([0, 0, 0, -100, 100]))
    def tick(self, seconds: int, ahead: int) -> None:
        self.held.tick(seconds, ahead)

    @rule(dies=st.booleans(), wiped=st.integers(0, 5))
    def route(self, *, dies: bool, wiped: int) -> None:
        if wiped == 0:
            self.held.client.flushdb()
        self.held.route(dies=dies)

    @precondition(going)
    @rule(once=st.integers(0, 9))
    def cancel(self, once: int) -> None:
        if once == 0:
            self.held.post(inbox.Cancel(by="ada"), Approver("ada"))

    def teardown(self) -> None:
        self.held.finish()


@pytest.fixture
def client(redis_db: str) -> Iterator[RedisClient]:
    client = connect(redis_db, timeout_s=5.0)
    yield client
    client.close()


def run(client: RedisClient, how: settings) -> None:
    machine = type("Bound", (Machine,), {"client": client})
    run_state_machine_as_test(machine, settings=how)


@pytest.mark.timeout(1800)
def test_whatever_comes_in_whatever_order_each_request_has_one_end(client: RedisClient) -> None:
    run(client, settings(HUNT, max_examples=EXAMPLES))


Plant = Callable[[pytest.MonkeyPatch], None]


def any_request(patch: pytest.MonkeyPatch) -> None:
    """A decision about any request is taken for the one that is open."""
    decided = taking._decided

    def careless(state: Any, one: Any, body: Any, *rest: Any) -> Any:
        call = state.calls.get(body.call_id)
        if call is not None and call.request is not None:
            body = body.model_copy(update={"request_hash": call.request.hash})
        return decided(state, one, body, *rest)

    patch.setattr(taking, "_decided", careless)


def anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(taking, "may_not", lambda *_, **__: "")


def roles_of_the_name(patch: pytest.MonkeyPatch) -> None:
    """The name is believed, and the credential is not looked at."""
    patch.setattr(taking, "may_not", lambda may, _, who, **__: "" if who.name in may or "role:manager" in may else "no")


def swallowed(patch: pytest.MonkeyPatch) -> None:
    """What is not taken leaves no trace."""
    take = WriterPen.take

    async def silent(self: Any, body: Any, one: Any, **words: Any) -> int:
        return -1 if isinstance(body, ev.InboxRefused) else await take(self, body, one, **words)

    patch.setattr(WriterPen, "take", silent)


def taken_again(patch: pytest.MonkeyPatch) -> None:
    """What was taken is not remembered by its identity."""
    take = WriterPen.take

    async def forgetful(self: Any, body: Any, one: Any, **words: Any) -> int:
        unlike = InboxId(source=f"{one.inbox_id.source}#{one.position}", seq=one.inbox_id.seq)
        return await take(self, body, one._replace(inbox_id=unlike), **words)

    patch.setattr(WriterPen, "take", forgetful)


def off_before_it_is_said(patch: pytest.MonkeyPatch) -> None:
    """The router takes an entry off its agenda, and posts then: or dies in between."""
    say = router.Router._say

    async def early(self: Any, partition: int, member: bytes) -> None:
        await router.Router._take_off(self, partition, DUE, member)
        if type(self) is router.Router:
            await say(self, partition, member)

    patch.setattr(router.Router, "_say", early)


def said_under_new_names(patch: pytest.MonkeyPatch) -> None:
    names = iter(range(10**6))
    patch.setattr(router, "InboxId", lambda source, seq: InboxId(source=f"{source}.{next(names)}", seq=seq))


def refused_at_once(patch: pytest.MonkeyPatch) -> None:
    """Whoever opens a session late does not ask those who are next."""
    expire = approvals.expire_requests

    async def hasty(pen: Any, state: Any, clock: Any) -> None:
        calls = {
            name: one if one.request is None else one._replace(request=one.request._replace(then=()))
            for name, one in state.calls.items()
        }
        await expire(pen, state._replace(calls=calls), clock)

    patch.setattr(opening, "expire_requests", hasty)


def same_people_again(patch: pytest.MonkeyPatch) -> None:

    def repeated(call_id: str, request: Any, now_us: int) -> Any:
        body, ext = escalated(call_id, request, now_us)
        return body.model_copy(update={"may_approve": request.may_approve}), ext

    patch.setattr(taking, "escalated", repeated)


def edited_to_anything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opening, "unfit", lambda *_: "")


def after_a_cancel(patch: pytest.MonkeyPatch) -> None:
    decided = taking._decided
    running = TrajectoryStatus.RUNNING
    patch.setattr(taking, "_decided", lambda state, *rest: decided(state._replace(status=running), *rest))


FAULTS: Final[dict[str, Plant]] = {
    plant.__name__: plant
    for plant in (
        any_request,
        anybody,
        roles_of_the_name,
        swallowed,
        taken_again,
        off_before_it_is_said,
        said_under_new_names,
        refused_at_once,
        same_people_again,
        edited_to_anything,
        after_a_cancel,
    )
}


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        yield


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_seen(name: str, client: RedisClient) -> None:
    with planted(FAULTS[name]), pytest.raises(AssertionError):
        run(client, HUNT)
