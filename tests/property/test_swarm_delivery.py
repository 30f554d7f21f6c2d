"""Whatever routers do (die, say things again, one beside another) and whenever runs look into their inboxes: what one
run says to another is taken once, in its sender's order, after its causes; and so is the end of each child run."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from hypothesis import given
from hypothesis import strategies as st

from tracklog.consumers.routing.deliveries import delivery_of
from tracklog.consumers.swarm.order import misfits, total_order
from tracklog.infra.clock import ManualClock
from tracklog.infra.log.port import Record
from tracklog.processors.outbox import Outbox
from tracklog.producers.mailbox import Incoming, Mailbox, incoming
from tracklog.producers.pen import WriterPen
from tracklog.producers.taking import take_all
from tracklog.schemas import events as ev
from tracklog.schemas import inbox
from tracklog.schemas.codec import Event, decode_event, encode_event, encode_record, single_object
from tracklog.schemas.envelope import InboxEnvelope
from tracklog.schemas.fold import fold
from tracklog.schemas.lifecycle import EXT_LANE
from tracklog.schemas.spawn import EXT_CHILD, EXT_DEPTH, EXT_SWARM, ending_of
from tracklog.schemas.stamp import Stamp, trajectory_prefix
from tracklog.schemas.state import State
from tracklog.schemas.values import Body, Driver, Ending, InboxId, Ref

PARENT: Final = "p"
CHILDREN: Final = ("p.child-1", "p.child-2")
NAMES: Final = (PARENT, *CHILDREN)


class Run:
    """One trajectory with what was posted to it. It stands for its owner's pen and mailbox."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = State(name)
        self.events: list[Event] = []
        self.outbox = Outbox()
        self.inbox: list[Record] = []
        self.writer = self
        self._taken: set[int] = set()

    def cleaned(self, body: inbox.InboxBody) -> inbox.InboxBody:
        """Nothing that is said here is a secret."""
        return body

    def append(
        self,
        body: ev.EventBody,
        *,
        causes: tuple[Ref, ...] = (),
        lamport: int = 0,
        taken: tuple[InboxId | None, int | None] = (None, None),
        ext: Mapping[str, str] | None = None,
    ) -> None:
        head = self.state.head
        stamp = Stamp(
            self.name,
            trajectory_prefix(self.name, "default"),
            head.seq + 1,
            head.epoch,
            0,
            max(self.state.lamport, lamport) + 1,
            0,
            head.hash,
            causes,
            *taken,
            dict(ext or {}),
        )
        encoded = encode_event(stamp, body, single_object)
        event = decode_event(self.name.encode(), encoded.value, encoded.headers)
        self.state, judgement = fold(self.state, event)
        assert judgement.verdict == "accepted"
        self.outbox = self.outbox.after(event, Record("events", 0, len(self.events), 0, b"", b"", ()))
        self.events.append(event)

    def begin(self, submit: Incoming | None = None) -> None:
        task = ev.TaskStarted(driver=Driver.WORKER, task=Body.of("go"), agent="a")
        if submit is None:
            self.append(ev.OwnershipClaimed(owner="w", nonce=bytes(16), driver=Driver.WORKER))
            self.append(task)
            return
        assert isinstance(submit.body, inbox.Submit)
        claim = ev.OwnershipClaimed(owner="w", nonce=bytes(16), driver=Driver.WORKER)
        taken = submit.inbox_id, submit.position
        self.append(claim, causes=submit.causes, lamport=submit.lamport, taken=taken)
        self.append(submit.body.task, ext=submit.ext)

    async def look(self) -> None:
        """Takes all that has come; what has not begun begins with its Submit."""
        if self.state.task is None:
            submit = next((one for one in self.waiting() if isinstance(one.body, inbox.Submit)), None)
            if submit is None:
                return
            self.begin(submit)
        await take_all(cast(WriterPen, self), cast(Mailbox, self), ManualClock())

    def waiting(self) -> Sequence[Incoming]:
        read = (incoming(record) for record in self.inbox if record.offset not in self._taken)
        return [one for one in read if one is not None]

    def took(self, one: Incoming) -> None:
        self._taken.add(one.position)

    async def standing(self) -> State:
        return self.state

    async def take(
        self, body: ev.EventBody, one: Incoming, *, turn: int, cause: int | None, ext: Mapping[str, str] | None = None
    ) -> int:
        own = () if cause is None else (Ref(trajectory_id=self.name, seq=cause),)
        taken = one.inbox_id, one.position
        self.append(body, causes=(*own, *one.causes), lamport=one.lamport, taken=taken, ext=ext)
        return self.state.head.seq


class World:
    def __init__(self) -> None:
        self.runs = {name: Run(name) for name in NAMES}
        self.runs[PARENT].begin()
        self.places: dict[tuple[int, str], int] = defaultdict(int)
        """How far each of two routers has come with each sender."""

    def say(self, sender: Run, receiver: Run) -> None:
        if sender.state.task is not None and not sender.state.ended:
            text = f"{len(sender.events)} of {sender.name}"
            sender.append(ev.MessageSent(peer=receiver.name, message=Body.of(text)))

    def spawn(self) -> None:
        parent = self.runs[PARENT]
        left = [name for name in CHILDREN if name not in parent.state.sent]
        if left and not parent.state.ended:
            lane = len({child.lane for child in parent.state.children.values()})
            ext = {EXT_CHILD: "a", EXT_LANE: str(lane), EXT_DEPTH: "1", EXT_SWARM: PARENT}
            parent.append(ev.MessageSent(peer=left[0], message=Body.of("go")), ext=ext)

    def end(self, run: Run) -> None:
        if run.name != PARENT and run.state.task is not None and not run.state.ended:
            run.append(ev.TaskEnded(ending=Ending.COMPLETED, result=Body.of(f'"{run.name}"')))

    def route(self, router: int, sender: Run) -> bool:
        """One post of a sender; False when all were made."""
        place = self.places[router, sender.name]
        if place >= len(sender.outbox.posts):
            return False
        post = sender.outbox.posts[place]
        self.places[router, sender.name] = place + 1
        told = delivery_of(sender.events[post.offset], post)
        assert told is not None
        receiver = self.runs[told.to]
        envelope = InboxEnvelope(
            trajectory_id=told.to,
            tenant="default",
            source=told.inbox_id.source,
            source_seq=told.inbox_id.seq,
            causes=(told.cause,),
            lamport=told.lamport,
            recorded_at=0,
            ext=told.ext,
        )
        made = encode_record(envelope, told.body, single_object)
        offset = len(receiver.inbox)
        receiver.inbox.append(Record("inbox", 0, offset, 0, told.to.encode(), made.value, made.headers))
        return True

    async def act(self, what: int, one: int, other: int) -> None:
        sender, receiver = self.runs[NAMES[one]], self.runs[NAMES[other]]
        if what == 1 and sender is not receiver:
            self.say(sender, receiver)
        elif what == 2:
            self.end(sender)
        elif what in (3, 4):
            self.route(what % 2, sender)
        elif what == 5:  # a router dies, and another one begins where that one had taken note
            self.places[other % 2, sender.name] = max(0, self.places[other % 2, sender.name] - 1 - other)
        else:
            await receiver.look()

    async def settle(self) -> None:
        """All is said again from the beginning by another router, until nothing new comes of it."""
        before = -1
        while before != sum(len(run.events) for run in self.runs.values()):
            before = sum(len(run.events) for run in self.runs.values())
            for run in self.runs.values():
                while self.route(9, run):
                    pass
            for run in self.runs.values():
                await run.look()


def heard(run: Run, sender: str, *, ends: bool = False) -> list[Any]:
    return [
        event.body.message.text
        for event in run.events
        if isinstance(event.body, ev.MessageReceived)
        and event.body.peer == sender
        and (ending_of(event) is not None) == ends
    ]


def said(run: Run, receiver: str) -> list[str]:
    bodies = [(event.body, event.envelope.ext) for event in run.events]
    return [
        body.message.text
        for body, ext in bodies
        if isinstance(body, ev.MessageSent) and body.peer == receiver and EXT_CHILD not in ext
    ]


STEP: Final = st.tuples(st.sampled_from((1, 1, 1, 1, 2, 3, 3, 4, 5, 6, 6)), st.integers(0, 2), st.integers(0, 2))


@given(st.integers(0, 2), st.lists(STEP, min_size=20, max_size=80))
def test_what_is_said_is_heard_once_in_order_and_after_its_causes(
    begun: int, steps: list[tuple[int, int, int]]
) -> None:
    world = World()

    async def play() -> None:
        for _ in CHILDREN:
            world.spawn()
        for child in CHILDREN[:begun]:
            while world.route(0, world.runs[PARENT]):
                pass
            await world.runs[child].look()
        for step in steps:
            await world.act(*step)
        await world.settle()

    asyncio.run(play())
    runs = world.runs
    for receiver in runs.values():
        for sender in runs.values():
            told, was_said = heard(receiver, sender.name), said(sender, receiver.name)
            # all of it, once, in order; or as much as came before the receiver's end
            assert told == (was_said[: len(told)] if receiver.state.ended or receiver.state.task is None else was_said)
    for name in CHILDREN:
        starts = sum(isinstance(event.body, ev.TaskStarted) for event in runs[name].events)
        assert starts == 1
        assert heard(runs[PARENT], name, ends=True) == ([f'"{name}"'] if runs[name].state.ended else [])
    assert misfits(total_order(run.events for run in runs.values())) == []
    assert all(run.state.irregular == 0 and run.state.fault is None for run in runs.values())
