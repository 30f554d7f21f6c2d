"""Held calls between people, a session and a router, and what must hold of them whatever happens.

One trajectory on a log in memory asks for three calls side by side, again and again; the router is the real one over a
real agenda, stepped by hand; people answer through `Answers` or write past it into the inbox. `check` reads nothing but
the log, and says itself what is right: it uses none of the rules that it checks.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from tests.support.sessions import TRAJECTORY, ScriptedModel, World, asks, built_in, new_world, says
from tracklog.consumers.routing.router import Router
from tracklog.infra.clock import ManualClock, SystemClock, SystemEntropy
from tracklog.infra.log.ranges import read_range
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.settings import LogSettings, LoopSettings, Settings
from tracklog.processors.agenda import Agenda
from tracklog.processors.running import running
from tracklog.producers.answers import Answers
from tracklog.producers.approvals import EXPIRY
from tracklog.producers.divergence import Divergence
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.post import Poster
from tracklog.producers.replay import replay
from tracklog.schemas import events as ev
from tracklog.schemas import inbox
from tracklog.schemas.approvals import Approver
from tracklog.schemas.codec import Event, InboxRecord, decode_inbox
from tracklog.schemas.errors import ApprovalNeeded, Cancelled, InputError
from tracklog.schemas.fold import fold_all
from tracklog.schemas.lifecycle import TrajectoryStatus
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import Choice, InboxId

__all__ = ["CALLS", "EDIT", "PEOPLE", "UNFIT", "Approving"]

CALLS: Final = ("a", "b", "c")
EDIT: Final = '{"what":"less"}'
UNFIT: Final = '{"whom":3}'
PROPOSED: Final = '{"what":"it"}'
WITHIN_S: Final = 60
STEPS: Final = (("ada", "role:manager"), ("eve",), ("role:director tenant:default",))
"""Who is asked, one after the other; for 60, 30 and 30 s."""
RULES: Final = PolicyFile(
    b"""
default = "hold"

[[rules]]
name = "all"
then = "hold"
may_approve = ["ada", "role:manager"]
expires_in_s = 60
then_ask = [
    { may_approve = ["eve"], expires_in_s = 30 },
    { may_approve = ["role:director tenant:default"], expires_in_s = 30 },
]
""",
    "policy.toml",
)
REQUESTER: Final = "ada-2"


class Person(NamedTuple):
    """`may`: at which steps; said here again, so that nothing rests on the rules that are tested."""

    who: Approver
    may: frozenset[int]


def _person(name: str, roles: str, tenants: str, *may: int) -> Person:
    return Person(Approver(name, frozenset(roles.split()), frozenset(tenants.split())), frozenset(may))


PEOPLE: Final = (
    _person("ada", "", "", 0),
    _person("mo", "manager", "default", 0),
    _person("eve", "", "default other", 1),
    _person("di", "director manager", "*", 0, 2),
    _person("role:manager", "", "default"),
    _person("foreign", "manager director", "other"),
    _person(REQUESTER, "manager director", "*"),
    _person("mallory", "", "default"),
)


class Approving:
    """`turns`: how often three calls are asked for, one turn after the other."""

    def __init__(self, client: RedisClient, turns: int = 1) -> None:
        client.flushdb()
        self.client = client
        self.world: World = new_world("http://127.0.0.1:1")
        self.router_clock = ManualClock()
        self.answers = [asks(*((f"{name}{turn}", "readonly") for name in CALLS)) for turn in range(turns)]
        self.calls = [f"{name}{turn}" for turn in range(turns) for name in CALLS]
        self.events: list[Event] = []
        self._number = 0

    def open(self, die_at: int | None = None) -> bool:
        """Opens the session, goes on as far as it can, and checks; True when the trajectory has ended."""
        asyncio.run(self._open(die_at))
        self.events = self.world.events()
        check(self.events, self.mail(), whole=False)
        return self.state().ended

    def decide(self, call_id: str, person: Person, choice: Choice, arguments: str = EDIT, **words: Any) -> bool:
        """Through `Answers`; False when it was refused to their face."""
        return asyncio.run(self._decide(call_id, person, choice, arguments, words))

    def post(self, body: inbox.InboxBody, who: Approver, again: InboxId | None = None) -> InboxId:
        """Past `Answers`, as anything may that reaches the inbox. `again`: as the identity of another record."""
        self._number += 1
        inbox_id = again if again is not None else InboxId(source=f"{who.name}/{self._number}", seq=0)
        asyncio.run(self._post(body, inbox_id, who))
        return inbox_id

    def redeliver(self, number: int) -> None:
        """Appends a record of the inbox again, as it was."""
        records = list(self._raw_mail())
        if records:
            record = records[number % len(records)]
            log = self.world.new_log()
            log.append(Topics().inbox, record.key, record.value, record.headers, lambda *_: None)
            log.close()

    def route(self, *, dies: bool = False) -> None:
        """What one look of a router does; `dies`: between posting and taking off its agenda."""
        asyncio.run(self._route(dies))

    def tick(self, seconds: int, router_ahead: int = 0) -> None:
        self.world.clock.advance(seconds)
        now = self.world.clock.now_us() + router_ahead * 1_000_000
        self.router_clock = ManualClock(now)

    def request(self, call_id: str) -> bytes | None:
        """Hash of the request that is open about a call."""
        call = self.state().pending_approvals.get(call_id)
        return None if call is None or call.request is None else call.request.hash

    def state(self) -> State:
        return fold_all(State(TRAJECTORY), self.events)

    def mail(self) -> dict[InboxId, InboxRecord]:
        """What came, each once: the first of each identity."""
        found: dict[InboxId, InboxRecord] = {}
        for record in self._raw_mail():
            read = decode_inbox(record.key, record.value, record.headers)
            found.setdefault(read.envelope.inbox_id, read)
        return found

    def finish(self) -> None:
        """Whatever has happened, time and a router bring it to an end, in which nothing was lost."""
        for _ in range(4 * len(self.calls)):
            if self.state().ended or self.open():
                break
            self.tick(WITHIN_S + 1)
            self.route()
        assert self.state().ended, f"it does not end: {self.state().calls}"
        check(self.events, self.mail(), whole=True)
        assert self.state().irregular == 0
        if self.state().status is not TrajectoryStatus.CANCELLED:
            assert asyncio.run(self._divergence()) is None

    def _raw_mail(self) -> Iterator[Any]:
        log, topic = self.world.new_log(), Topics().inbox
        for partition in range(log.partition_count(topic)):
            bounds = log.bounds(topic, partition)
            yield from read_range(log, topic, partition, bounds.first, bounds.end)
        log.close()

    async def _open(self, die_at: int | None) -> None:
        self.world.die_at_append = die_at
        model = ScriptedModel(*self.answers, says("done"))
        with suppress(ApprovalNeeded, Cancelled):
            await self.world.crash(model, policy=RULES, on_behalf_of=REQUESTER)
        self.world.die_at_append = None

    async def _divergence(self) -> Divergence | None:
        setup = self.world.setup(ScriptedModel(*self.answers, says("done")), policy=RULES, on_behalf_of=REQUESTER)
        return (await replay(self.events, built_in(setup), setup=setup)).divergence

    async def _decide(
        self, call_id: str, person: Person, choice: Choice, arguments: str, words: dict[str, Any]
    ) -> bool:
        log = self.world.new_log()
        words |= {"arguments": arguments} if choice is Choice.EDIT else {}
        words |= {"answer": "by hand"} if choice is Choice.ANSWER else {}
        try:
            answers = Answers(log, clock=self.world.clock)
            await answers.answer(TRAJECTORY, call_id, who=person.who, choice=choice, **words)
        except InputError:
            return False
        finally:
            log.close()
        return True

    async def _post(self, body: inbox.InboxBody, inbox_id: InboxId, who: Approver) -> None:
        log = self.world.new_log()
        await Poster(log, Topics(), clock=SystemClock()).post(TRAJECTORY, body, inbox_id=inbox_id, ext=who.ext)
        log.close()

    async def _route(self, dies: bool) -> None:
        log, clock = self.world.new_log(), self.router_clock
        settings = Settings(log=LogSettings(url="memory:"), loop=LoopSettings(batch_wait_s=0.0, poll_timeout_s=0.001))
        agenda = running(Agenda(), log, self.client, settings, clock=SystemClock(), entropy=SystemEntropy())
        partitions = agenda.loop.drain()
        router = (
            _Dying(log, Topics(), self.client, agenda, clock=clock)
            if dies
            else Router(log, Topics(), self.client, agenda, clock=clock)
        )
        await router.look(partitions)
        if not dies:
            self._check_routed(clock.now_us())
        log.close()

    def _check_routed(self, now_us: int) -> None:
        """What has expired is in the inbox."""
        said = expired(self.mail().values())
        for call in self.state().pending_approvals.values():
            assert call.request is not None
            due = call.request.expires_at is not None and call.request.expires_at <= now_us
            assert not due or call.request.hash in said, f"nobody says that it expired: {call}"


class _Dying(Router):
    """Posts, and is gone before it has taken that off its agenda."""

    async def _take_off(self, partition: int, name: str, member: bytes) -> None:
        return


def expired(mail: Iterable[InboxRecord]) -> list[bytes]:
    """The requests of which it is said that they have expired."""
    bodies = [one.body for one in mail]
    return [one.request_hash for one in bodies if isinstance(one, inbox.Decision) and one.choice is Choice.EXPIRE]


class _Round(NamedTuple):
    """A call as it stands while the events are gone through: the request that is open, at which step, about what."""

    request: bytes
    step: int
    arguments: bytes


def check(events: list[Event], mail: dict[InboxId, InboxRecord], *, whole: bool) -> None:
    """What must hold. `whole`: everything that came has been looked at."""
    _check_mail(events, mail, whole=whole)
    open_now: dict[str, _Round] = {}
    allowed: dict[str, bytes] = {}
    ended: Counter[bytes] = Counter()
    cancelled = False
    for event in events:
        body, taken = event.body, event.envelope.inbox_id
        cancelled = cancelled or isinstance(body, ev.CancelRequested)
        if isinstance(body, ev.ApprovalRequested):
            before = open_now.get(body.call_id)
            step = 0 if before is None else before.step + 1
            assert body.may_approve == STEPS[step], "the wrong people are asked"
            if before is not None:
                assert body.argument_hash == before.arguments, "others are asked about other arguments"
                ended[before.request] += 1
                assert not cancelled, "somebody is asked after a cancel"
            open_now[body.call_id] = _Round(event.hash, step, body.argument_hash)
        elif isinstance(body, ev.ApprovalResolved):
            now = open_now.pop(body.call_id, None)
            assert now is not None, "resolved without a request"
            assert body.request_hash == now.request, "resolved by an answer to another request"
            ended[now.request] += 1
            _check_resolved(body, now, None if taken is None else mail[taken], cancelled=cancelled)
            if body.choice in (Choice.APPROVE, Choice.EDIT):
                allowed[body.call_id] = now.arguments if body.arguments is None else body.arguments.hash
        elif isinstance(body, ev.ToolIntent):
            assert body.arguments.hash == allowed.get(body.call_id), "made with what nobody approved"
    assert all(times == 1 for times in ended.values()), "a request came to two ends"


def _check_resolved(body: ev.ApprovalResolved, now: _Round, letter: InboxRecord | None, *, cancelled: bool) -> None:
    if body.choice is Choice.EXPIRE:
        assert (body.approver, now.step) == (EXPIRY, len(STEPS) - 1), "refused while others could be asked"
        return
    assert letter is not None, "a decision that nobody sent"
    assert isinstance(letter.body, inbox.Decision)
    assert letter.body.request_hash == now.request, "resolved by an answer to another request"
    assert (letter.body.call_id, letter.body.choice) == (body.call_id, body.choice)
    assert not cancelled, "decided after a cancel"
    (person,) = [one for one in PEOPLE if one.who.name == body.approver]
    assert now.step in person.may, f"{body.approver} decided at step {now.step}"
    assert letter.envelope.ext == person.who.ext, "by another credential than theirs"
    assert body.arguments is None or body.arguments.text == EDIT, "edited to what the tool does not take"


def _check_mail(events: list[Event], mail: dict[InboxId, InboxRecord], *, whole: bool) -> None:
    taken = Counter(event.envelope.inbox_id for event in events if event.envelope.inbox_id is not None)
    assert all(times == 1 for times in taken.values()), "taken twice"
    assert set(taken) <= set(mail), "taken, and never sent"
    told = {event.body.refused for event in events if isinstance(event.body, ev.InboxRefused)}
    assert told <= set(taken)
    said = Counter(expired(one for one in mail.values() if _of_router(one)))
    assert all(times == 1 for times in said.values()), "a router said twice that a request expired"
    if whole:
        assert set(taken) == set(mail), f"lost in silence: {set(mail) - set(taken)}"


def _of_router(one: InboxRecord) -> bool:
    return one.envelope.source.startswith("expiry/") and bool(one.envelope.causes)
