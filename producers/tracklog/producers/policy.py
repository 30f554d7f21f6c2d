"""What an agent may do without asking. Pure: the same call gets the same ruling when it is replayed."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from tracklog.producers.spend import Spend
from tracklog.producers.tools import Tool
from tracklog.schemas.approvals import Step
from tracklog.schemas.values import Budgets, Ruling, ToolCall

__all__ = ["ALLOW", "AllowAll", "Decision", "Policy", "Situation", "Step", "deny", "hold"]


class Decision(NamedTuple):
    """`rule` is in words; the model is given it when the call is refused.

    Of a held call: who may decide (see `schemas.approvals`; nobody named: anybody), until when, what they are told, who
    is asked after that, and whether the one on whose behalf the trajectory works may decide, too.
    """

    ruling: Ruling
    rule: str = ""
    may_approve: tuple[str, ...] = ()
    expires_in_s: float | None = None
    reason: str = ""
    then: tuple[Step, ...] = ()
    requester_may: bool = False


ALLOW: Final = Decision(Ruling.ALLOW)


def deny(rule: str) -> Decision:
    """The call is not made, and the model is told why."""
    return Decision(Ruling.DENY, rule)


def hold(
    rule: str,
    *,
    may_approve: tuple[str, ...] = (),
    expires_in_s: float | None = None,
    reason: str = "",
    then: tuple[Step, ...] = (),
    requester_may: bool = False,
) -> Decision:
    """The call waits until a person decides. When nobody did within `expires_in_s`, those of `then` are asked, one step
    after the other; after the last it is refused."""
    return Decision(Ruling.HOLD, rule, may_approve, expires_in_s, reason, then, requester_may)


class Situation(NamedTuple):
    """Where in which run a call is asked about."""

    tenant: str = ""
    agent: str = ""
    spend: Spend = Spend()


class Policy(Protocol):
    """Rules on calls. `version` is recorded with every ruling. A used-up budget refuses before the rules are asked."""

    @property
    def version(self) -> str: ...

    @property
    def budgets(self) -> Budgets: ...

    def decide(self, call: ToolCall, tool: Tool, situation: Situation) -> Decision:
        """Reads nothing but its arguments. The call's arguments fit the tool's schema."""


class AllowAll:
    """Every call of a known tool with fitting arguments, without limits."""

    version: Final = "allow-all"
    budgets: Final = Budgets()

    def decide(self, call: ToolCall, tool: Tool, situation: Situation) -> Decision:
        return ALLOW
