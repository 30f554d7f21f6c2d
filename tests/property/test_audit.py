"""No healthy log has a fault: owners that lose, repeat, crash, freeze, race and take over, by DESIGN §5 and §8."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.chains import Chain, Made
from tests.support.tampering import decoded
from tracklog.schemas import events as ev
from tracklog.schemas.audit import Audit
from tracklog.schemas.fold import fold_all
from tracklog.schemas.state import State
from tracklog.schemas.values import (
    Body,
    Driver,
    Effect,
    Ending,
    Place,
    ResultStatus,
    Settled,
)

ID = "run"
STEPS = 60


def state_of(log: list[Made]) -> State:
    return fold_all(State(ID), (decoded(made) for made in log))


class Owner:
    """One start of a process: appends in a pipeline, hears of a loss late, waits where DESIGN asks for it."""

    def __init__(self, chain: Chain, rng: Random, name: str) -> None:
        self.chain, self.rng, self.name = chain, rng, name
        self.next, self.lost, self.calls, self.released = 0, set[int](), 0, False

    def step(self, log: list[Made]) -> None:
        records = self.chain.records
        if self.lost and self.rng.random() < 0.4:
            self.next, self.lost = min(self.lost), set()
        if self.next == len(records):
            if self.released or (self.lost and self._must_wait()):
                return
            self._write()
        if self.rng.random() < 0.15:
            self.lost.add(self.next)
        else:
            log.extend([records[self.next]] * self.rng.choice([1, 1, 1, 2]))
        self.next += 1

    def _must_wait(self) -> bool:
        if not self.chain.records:
            return False
        body = decoded(self.chain.records[-1]).body
        return isinstance(body, ev.TaskEnded | ev.OwnershipReleased | ev.ToolIntent)

    def _write(self) -> None:
        choice = self.rng.random()
        if choice < 0.2:
            self.calls += 1
            self.chain.add(
                ev.ToolIntent(
                    call_id=f"{self.name}-{self.calls}",
                    tool="t",
                    arguments=Body.of("{}"),
                    effect=Effect.OPAQUE,
                    place=Place.INLINE,
                    not_after=1,
                )
            )
        elif choice < 0.3 and not self.lost:
            self.chain.add(ev.OwnershipReleased(owner=self.name, nonce=bytes(16)))
            self.released = True
        elif choice < 0.35:
            self.chain.add(ev.TaskEnded(ending=Ending.COMPLETED))
        elif choice < 0.5 and self.calls and isinstance(decoded(self.chain.records[-1]).body, ev.ToolIntent):
            self.chain.add(
                ev.ToolResult(
                    call_id=f"{self.name}-{self.calls}",
                    status=ResultStatus.OK,
                    output=Body.of(""),
                    settled=Settled.DIRECT,
                )
            )
        else:
            self.chain.add(ev.MessageSent(peer="user", message=Body.of(self.name)))


def claims(log: list[Made], rng: Random, count: int, started: int) -> list[Owner]:
    """`count` processes claim at once from what they read; those whose claim is accepted own the trajectory."""
    state = state_of(log)
    rivals = []
    for number in range(count):
        chain = Chain(ID, driver=Driver.WORKER)
        chain.seq, chain.epoch, chain.hash = state.head.seq + 1, state.head.epoch, state.head.hash
        rivals.append(Owner(chain, rng, f"owner-{started + number}"))
    for rival in rivals:
        log.append(rival.chain.claim(rival.name))
        rival.chain.records.clear()
        if rng.random() < 0.3:
            log.append(log[-1])
    won = state_of(log).head.hash
    return [rival for rival in rivals if rival.chain.hash == won]


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_healthy_log_has_no_fault_whatever_its_owners_go_through(seed: int) -> None:
    rng = Random(seed)
    log: list[Made] = []
    alive = claims(log, rng, rng.choice([1, 2, 3]), 0)
    for step in range(STEPS):
        if not alive or rng.random() < 0.05:
            newest = claims(log, rng, rng.choice([1, 1, 2]), 10 * (step + 1))
            alive = [*alive, *newest] if rng.random() < 0.5 else newest
        if alive:
            rng.choice(alive).step(log)

    audit = Audit(ID)
    for offset, made in enumerate(log):
        audit.add(decoded(made), 0, offset)

    report = audit.report(state_of(log))
    assert report.faults == (), report
