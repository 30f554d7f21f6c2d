"""Writers on a log that is a list: they keep the rules of DESIGN §8, the way to the log does not.

A writer claims what it has read, reads its claim back before it goes on, appends in a pipeline, and appends
the same bytes again when in doubt. On the way a record may be lost, late or doubled; a writer that has been
replaced does not know it and goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from tests.support.chains import Chain, Made
from tracklog.schemas.codec import Event, decode_event
from tracklog.schemas.events import Observed
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import State
from tracklog.schemas.values import Body, ObservedKind

TRAJECTORY = "t"


def event_of(made: Made) -> Event:
    return decode_event(made.key, made.value, made.headers)


class Writer:
    """One process. `sent` is all it wrote under its last claim, in order; `outbox` is under way to the log."""

    def __init__(self, name: str, log: list[Made]) -> None:
        self.name, self.log = name, log
        self.chain: Chain | None = None
        self.claims = 0
        self.sent: list[Made] = []
        self.outbox: list[Made] = []

    def claim(self) -> None:
        """Reads the log to its end and claims what it found."""
        head = fold_all(State(TRAJECTORY), map(event_of, self.log)).head
        self.chain = Chain(TRAJECTORY)
        self.chain.seq, self.chain.epoch, self.chain.hash = head.seq + 1, head.epoch, head.hash
        self.claims += 1
        self.sent = [self.chain.claim(f"{self.name}/{self.claims}")]
        self.outbox.append(self.sent[0])

    def write(self) -> None:
        """Adds to the pipeline, once the claim was read back."""
        if self.chain is None or not self._claim_is_accepted():
            return
        text = Body.of(f"{self.name}/{self.claims}")
        body = Observed(kind=ObservedKind.STEP, name="note", occurrence=len(self.sent), value=text)
        self.sent.append(self.chain.add(body))
        self.outbox.append(self.sent[-1])

    def _claim_is_accepted(self) -> bool:
        state = State(TRAJECTORY)
        for made in self.log:
            state = fold_all(state, [event_of(made)])
            if state.head.hash == self.sent[0].hash:
                return True
        return False

    def deliver(self) -> None:
        if self.outbox:
            self.log.append(self.outbox.pop(0))

    def deliver_twice(self) -> None:
        if self.outbox:
            self.log += [self.outbox[0], self.outbox.pop(0)]

    def lose(self) -> None:
        if self.outbox:
            self.outbox.pop(0)

    def repeat(self) -> None:
        """In doubt about all of it: the same bytes again."""
        self.outbox += self.sent


class Step(NamedTuple):
    writer: int
    action: str


ACTIONS = ("claim", "write", "write", "write", "deliver", "deliver", "deliver", "deliver_twice", "lose", "repeat")
WRITERS = 3


def steps(max_size: int = 60) -> st.SearchStrategy[list[Step]]:
    step = st.builds(Step, st.integers(0, WRITERS - 1), st.sampled_from(ACTIONS))
    return st.lists(step, min_size=10, max_size=max_size)


def played(script: Sequence[Step]) -> tuple[list[Made], list[Writer]]:
    """The log after a script, and the writers as they then are. Everything still under way arrives at last."""
    log: list[Made] = []
    writers = [Writer(f"writer-{number}", log) for number in range(WRITERS)]
    writers[0].claim()
    writers[0].deliver()
    for step in script:
        getattr(writers[step.writer], step.action)()
    for writer in writers:
        while writer.outbox:
            writer.deliver()
    return log, writers
