"""What a run has spent, and what is left of its budgets. Pure but for the clock it is given.

A ruling is recorded with the spend that it was made at, so a replay rules from the same numbers in whatever order
calls side by side are asked about. Time counts while a process works on the run: not while it waits for one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, NamedTuple

from tracklog.infra.clock import Clock
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.values import Budgets, Ruling

__all__ = ["EXT_SPEND", "NOTHING_SPENT", "Recount", "Spend", "Tally", "exhausted", "remaining"]

EXT_SPEND: Final = "spend"
"""In the ext of an `Authorized`: the numbers of a `Spend`, in order, with spaces between."""


class Spend(NamedTuple):
    """So far. `turns` includes the present one, `tool_calls` those that were not refused."""

    turns: int = 0
    tool_calls: int = 0
    tokens: int = 0
    cost_micro_usd: int = 0
    wall_ms: int = 0

    @property
    def text(self) -> str:
        return " ".join(map(str, self))

    @classmethod
    def read(cls, text: str) -> Spend:
        return cls(*map(int, text.split()))


NOTHING_SPENT: Final = Spend()


def exhausted(limits: Budgets, spend: Spend) -> str:
    """Which budget does not allow one call more, in words; "" for none."""
    for name, used in spend._asdict().items():
        limit = getattr(limits, name)
        if limit is not None and (used > limit if name == "turns" else used >= limit):
            return f"budget {name} is used up: {min(used, limit)} of {limit}"
    return ""


def remaining(limits: Budgets, spend: Spend) -> Budgets | None:
    """What is left, None for no limits at all."""
    left = {
        name: max(0, limit - used)
        for name, used in spend._asdict().items()
        if (limit := getattr(limits, name)) is not None
    }
    return Budgets(**left) if left else None


class Recount:
    """What the record says of a run's spend. Fed with its accepted events in order, from where its program goes on."""

    def __init__(self, before: Spend) -> None:
        """`before`: what was spent before the first of them, on what no program is given again."""
        self.tenant = ""
        self.before: Final = before
        self.tool_calls = before.tool_calls
        self.wall_ms = before.wall_ms
        self.at: dict[str, list[Spend | None]] = defaultdict(list)
        """By call id: what the rulings on it were made at. The arguments of a held call may be edited, and it is ruled
        on again; it is one call."""

    def keep(self, event: Event) -> None:
        """Takes an event in."""
        body = event.body
        if type(body) is not ev.Authorized:
            return
        rulings = self.at[body.call_id]
        self.tool_calls += body.ruling is not Ruling.DENY and not rulings
        text = event.envelope.ext.get(EXT_SPEND)
        spend = None if text is None else Spend.read(text)
        rulings.append(spend)
        if spend is not None:
            self.wall_ms = max(self.wall_ms, spend.wall_ms)


class Tally:
    """The spend of an open session: what the record says, and what came after it."""

    def __init__(self, recount: Recount, clock: Clock) -> None:
        self._recount = recount
        self._clock = clock
        self._since_s = clock.monotonic_s()
        self._calls = 0
        self._given = recount.before.tool_calls
        self._tokens = recount.before.tokens
        self._cost_micro_usd = recount.before.cost_micro_usd

    @property
    def tenant(self) -> str:
        return self._recount.tenant

    def replied(self, body: ev.ModelReplied) -> None:
        """Takes in a reply that was given out, recorded or new."""
        self._tokens += body.usage.input_tokens + body.usage.output_tokens
        self._cost_micro_usd += body.cost_micro_usd or 0

    def called(self, *, recorded: bool) -> None:
        """Takes in a call that was not refused."""
        self._given += 1
        self._calls += not recorded

    def at(self, call_id: str, times: int = 0) -> Spend | None:
        """What a recorded ruling was made at; None when that was not recorded with it."""
        rulings = self._recount.at[call_id]
        return rulings[times] if times < len(rulings) else None

    def now(self, turn: int) -> Spend:
        """For a ruling that is not recorded."""
        return Spend(
            turns=turn,
            tool_calls=self._recount.tool_calls + self._calls,
            tokens=self._tokens,
            cost_micro_usd=self._cost_micro_usd,
            wall_ms=self._recount.wall_ms + int((self._clock.monotonic_s() - self._since_s) * 1000),
        )

    @property
    def given(self) -> Spend:
        """What was spent up to where the program is in the record; the time that of all of the record."""
        now = self.now(0)
        return now._replace(tool_calls=self._given)

    def before_turn(self, turn: int) -> Spend:
        """What a run has spent before its next turn, as far as the program's own place in the record says it."""
        return Spend(turns=turn + 1, tokens=self._tokens, cost_micro_usd=self._cost_micro_usd)
