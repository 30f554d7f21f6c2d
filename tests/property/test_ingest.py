"""Whatever two clients ask of two replicas, and whenever one dies: each event is in once, in its client's order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.recording import RUN, Given, Replica, replica, said, start, turn
from tests.support.sessions import Crash, World, new_world
from tests.support.writing import read_accepted
from tracklog.consumers.verify import Verification
from tracklog.infra.log.memory import Fault
from tracklog.schemas.errors import LeaseHeld
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import State
from tracklog.schemas.topics import Topics

EXAMPLES: Final = 20
EVENTS: Final[dict[str, list[Given]]] = {
    "a": [said(), *(event for number in range(6) for event in turn(f"c{number}"))],
    "b": [said(f"and {number}") for number in range(20)],
}


class Step(NamedTuple):
    """A client sends its next `events`, or what it is not sure of, to a replica that dies at an append, if at
    all, after the clock has gone on."""

    client: str
    replica: int
    events: int
    die_at: int | None
    wait_s: int


STEPS: Final = st.lists(
    st.builds(
        Step,
        st.sampled_from(["a", "a", "a", "b"]),
        st.integers(0, 1),
        st.integers(1, 6),
        st.none() | st.integers(0, 7),
        st.sampled_from([0, 0, 10, 70]),
    ),
    max_size=12,
)


class Dying:
    """Faults of a log: nothing reaches it after the death."""

    def __init__(self) -> None:
        self.left: int | None = None

    def __call__(self, topic: str, key: bytes, value: bytes) -> Fault | None:
        if self.left == 0:
            raise Crash
        if self.left is not None:
            self.left -= 1
        return None


class Clients:
    """What each knows: how many of its events were answered, and what it is not sure of."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.answered = {"a": 1, "b": 0}
        self.unsure: dict[str, list[Given]] = {"a": [], "b": []}

    async def send(self, one: Replica, client: str, count: int) -> None:
        first = self.answered[client]
        begin = first - 1 if client == "a" else first
        batch = self.unsure[client] or EVENTS[client][begin : begin + count]
        if not batch:
            return
        self.unsure[client] = batch
        with suppress(LeaseHeld):
            found = await one.append(first, batch, client)
            assert found.next == first + len(batch)
            self.answered[client] = found.next
            self.unsure[client] = []

    def check(self, ended: bool) -> None:
        (report,) = Verification(self.world.new_log(), Topics().events).reports()
        assert report.sound, report
        events = read_accepted(self.world.new_log(), RUN)
        state = fold_all(State(RUN), events)
        assert (state.irregular, state.ended) == (0, ended)
        for client, answered in self.answered.items():
            taken = [event.envelope.inbox_id for event in events if event.envelope.inbox_id is not None]
            numbers = [one.seq for one in taken if one.source == f"ingest:ada/{client}"]
            assert numbers == list(range(len(numbers)))
            assert answered <= len(numbers) <= answered + len(self.unsure[client])


async def play(steps: Sequence[Step]) -> None:
    world = new_world("nowhere")
    clients = Clients(world)
    async with AsyncExitStack() as stack:

        async def started() -> tuple[Replica, Dying]:
            dying = Dying()
            return await stack.enter_async_context(replica(world, faults=dying)), dying

        replicas = [await started(), await started()]
        await replicas[0][0].start(start("a"))
        for step in steps:
            world.clock.advance(step.wait_s)
            one, dying = replicas[step.replica]
            dying.left = step.die_at
            try:
                await clients.send(one, step.client, step.events)
                dying.left = None
            except Crash:
                replicas[step.replica] = await started()
            clients.check(ended=False)
        world.clock.advance(100)
        one, _ = replicas[0]
        for _ in range(2):  # what is not sure, and the rest
            await clients.send(one, "a", len(EVENTS["a"]))
        await one.append(clients.answered["a"], [{"type": "TaskEnded", "ending": "completed"}], "a")
        clients.answered["a"] += 1
    assert clients.answered["a"] == len(EVENTS["a"]) + 2
    clients.check(ended=True)


@settings(max_examples=EXAMPLES, deadline=None)
@given(STEPS)
def test_each_event_is_in_once_and_in_order(steps: list[Step]) -> None:
    asyncio.run(play(steps))
