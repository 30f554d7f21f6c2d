"""What is ruled on a call before it is made: by its tool's schema, the budgets, the policy, and a person (DESIGN §9).

The arguments of a held call may be edited by who decides about it. The edited call is ruled on anew, as any other is;
a rule that would hold it again is satisfied by its editor, when that one may decide under it. Each round is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Final

from tracklog.producers.approvals import Approvals
from tracklog.producers.cursor import describe
from tracklog.producers.divergence import Divergence
from tracklog.producers.policy import ALLOW, Decision, Situation, deny
from tracklog.producers.record import Record
from tracklog.producers.sandbox import GIVEN, Sandbox
from tracklog.producers.settle import Outcome
from tracklog.producers.setup import Setup
from tracklog.producers.spend import EXT_SPEND, Spend, Tally, exhausted, remaining
from tracklog.producers.taking import Resolved
from tracklog.producers.tool_run import Ran, check_arguments, no_such_tool
from tracklog.schemas import events as ev
from tracklog.schemas.approvals import Approver, may_not
from tracklog.schemas.limits import TEXT_FIELD_CHARS_MAX
from tracklog.schemas.redacting import ARGUMENTS_REFUSED
from tracklog.schemas.values import Choice, ResultStatus, Ruling, Settled, ToolCall

__all__ = ["Rulings", "Word"]

UNFIT: Final = "unfit"
"""Starts the rule of a ruling that no policy made: the call could not have been made."""


@dataclass(frozen=True, slots=True)
class Word:
    """The last word on a call before it is made: `call` is what is made, `instead` its outcome when it is not."""

    call: ToolCall
    instead: Outcome | None = None
    recorded: bool = False
    """A fork's, given what its origin was given."""
    request_hash: bytes | None = None


class Rulings:
    """Of one session."""

    def __init__(self, setup: Setup, record: Record, tally: Tally, sandbox: Sandbox | None) -> None:
        self._setup = setup
        self._record = record
        self._tally = tally
        self._sandbox = sandbox
        self._words: dict[str, Word] = {}
        self.approvals: Final = Approvals(record, setup.clock)
        self.stands: Callable[[], bool] = lambda: False
        """Whether a recorded ruling holds whatever would be ruled now: it was made with other tools."""

    async def on(self, call: ToolCall) -> Word:
        """The last word on a call that the model proposed; recorded once. Raises ApprovalNeeded for a held one."""
        if call.call_id not in self._words:
            self._words[call.call_id] = await self._last_word(call)
        return self._words[call.call_id]

    async def _last_word(self, call: ToolCall) -> Word:
        edit: Resolved | None = None
        for times in count():
            ruled, decision = await self._rule(call, times, edit)
            if ruled.ruling is Ruling.ALLOW:
                given = self._sandbox is not None and ruled.rule == GIVEN
                return Word(call, recorded=given, request_hash=None if edit is None else edit.body.request_hash)
            if ruled.ruling is Ruling.DENY:
                return Word(call, _refusal(ruled.rule))
            resolved = await self.approvals.of(call, decision, times)
            if resolved.body.arguments is None:
                return await self._resolved(call, resolved.body)
            edit = resolved
            call = call.model_copy(update={"arguments": await self._record.whole(resolved.body.arguments)})
        raise AssertionError("people edit a call only so often")

    async def _resolved(self, call: ToolCall, resolved: ev.ApprovalResolved) -> Word:
        if resolved.choice is Choice.APPROVE:
            return Word(call, request_hash=resolved.request_hash)
        if resolved.answer is not None:
            answer = await self._record.whole(resolved.answer)
            return Word(call, Outcome(Ran(ResultStatus.OK, answer), Settled.PERSON))
        words = f"by {resolved.approver}: {resolved.reason}" if resolved.reason else f"by {resolved.approver}"
        return Word(call, _refusal(words))

    async def _rule(self, call: ToolCall, times: int, edit: Resolved | None) -> tuple[ev.Authorized, Decision]:
        """The recorded ruling or a new one, and the policy's decision now. `times`: how often it was ruled on before;
        it is one call, counted once."""
        asked = f"an authorization of call {call.call_id!r}"
        stands = self.stands()
        found = await self._record.of_call(ev.Authorized, call.call_id, asked, times)
        spend = None if found is None else self._tally.at(call.call_id, times)
        spend = self._spend_now(counted=times > 0) if spend is None else spend
        decision = self._decide(call, spend)
        stands = found is not None and (stands or found.seq < 0)
        if self._record.rule.partial:  # what its harness refused to make has no ruling of its own
            stands = decision.rule.startswith(UNFIT)
        if self._sandbox is not None and decision.ruling is not Ruling.DENY and not stands:
            if found is not None and self._sandbox.ruled(found.body.rule):
                self._count(times, recorded=True)
                return found.body, decision
            tool = self._setup.tools.get(call.tool)
            assert tool is not None
            decision = self._sandbox.decide(call, tool, decision)
        decision = self._satisfied(decision, edit)
        if found is not None:
            if not stands and found.body.ruling is not decision.ruling:
                asked = f"{decision.ruling.value} for call {call.call_id!r}: {decision.rule}"
                raise self._record.cursor.broken(Divergence(found.turn, found.seq, describe(found.body), asked))
            if found.body.ruling is not Ruling.DENY:
                self._count(times, recorded=True)
            return found.body, decision
        self._record.check_live(asked)
        made = decision.ruling is not Ruling.DENY
        if made:
            self._count(times, recorded=False)
        body = ev.Authorized(
            call_id=call.call_id,
            ruling=decision.ruling,
            policy_version=self._setup.policy.version,
            rule=decision.rule[:TEXT_FIELD_CHARS_MAX],
            budget_remaining=remaining(self._setup.limits, spend._replace(tool_calls=spend.tool_calls + made)),
        )
        await self._record.write(body, ext={EXT_SPEND: spend.text})
        return body, decision

    def _count(self, times: int, *, recorded: bool) -> None:
        if times == 0:
            self._tally.called(recorded=recorded)

    def _spend_now(self, *, counted: bool) -> Spend:
        """For a ruling that was not recorded with its spend, without the call itself. In an import no ruling was."""
        spend = self._tally.now(self._record.turn)
        spend = spend._replace(tool_calls=spend.tool_calls - counted)
        return spend._replace(tool_calls=len(self._words), wall_ms=0) if self._record.rule.partial else spend

    def _satisfied(self, decision: Decision, edit: Resolved | None) -> Decision:
        """A hold of an edited call, when its editor is somebody who may decide about it."""
        if edit is None or decision.ruling is not Ruling.HOLD:
            return decision
        start = self._record.cursor.start
        requester = self._setup.on_behalf_of if start is None else start.body.on_behalf_of
        who = Approver.said(edit.body.approver, edit.ext)
        terms = decision.may_approve, decision.requester_may
        if may_not(*terms, who, tenant=self._tally.tenant, requester=requester):
            return decision
        return ALLOW._replace(rule=f"edited by {who.name}, who may decide: {decision.rule}")

    def _decide(self, call: ToolCall, spend: Spend) -> Decision:
        tool = self._setup.tools.get(call.tool)
        if tool is None:
            return deny(f"{UNFIT}: {no_such_tool(call.tool, self._setup.tools).output}")
        if self._record.redaction is not None and self._record.redaction.holds(call.arguments):
            return deny(f"{UNFIT}: the call was not made: {ARGUMENTS_REFUSED}")
        arguments = check_arguments(tool, call.arguments)
        if isinstance(arguments, str):
            return deny(f"{UNFIT}: {arguments}")
        used_up = exhausted(self._setup.limits, spend)
        if used_up:
            return deny(used_up)
        return self._setup.policy.decide(call, tool, Situation(self._tally.tenant, self._setup.agent, spend))


def _refusal(rule: str) -> Outcome:
    """What the model is given of a call that was refused by this rule."""
    unfit = rule.startswith(UNFIT)
    text = rule.removeprefix(f"{UNFIT}: ") if unfit else f"refused: {rule}"
    return Outcome(Ran(ResultStatus.ERROR if unfit else ResultStatus.DENIED, text), Settled.DIRECT)
