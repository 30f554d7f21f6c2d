"""What a fork's calls may do: nothing happens again, and nothing new happens unless it may.

A fork beside its origin is sandboxed. A call with the tool and the arguments of a call in the origin is given what that
one gave; the n-th such call, what the n-th gave after the fork, and the last of them again when there are no more. A
call whose arguments a person edited goes by these, and by the ones that the model proposed. Any other call is denied,
unless its tool was allowed by name.

A fork that takes over is live, and what the run before it did after the turn has happened. A call that did nothing
(readonly, local; refused, failed, expired) is made by policy. One with the tool and the arguments of a call that may
have had its effect is given what that one gave; one with other arguments is held: a person decides whether it is
another effect, or the same once more.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tracklog.producers.fork_start import Fork
from tracklog.producers.lineage import Lineage
from tracklog.producers.policy import Decision, deny
from tracklog.producers.tools import Tool
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.values import Effect, ResultStatus, Ruling, ToolCall

__all__ = ["DENIED", "GIVEN", "HELD", "Sandbox", "sandbox_of"]

DENIED: Final = "sandboxed"
GIVEN: Final = "sandboxed: given as recorded"
HELD: Final = "this tool was called after the turn that is gone back to, with other arguments"
"""The rules of rulings that a sandbox made."""
HARMLESS: Final = (Effect.READONLY, Effect.LOCAL)
WITHOUT_EFFECT: Final = (ResultStatus.ERROR, ResultStatus.DENIED, ResultStatus.EXPIRED)

Key = tuple[str, bytes]
"""Tool and hash of the arguments."""


class Sandbox:
    """Of one fork beside its origin. `allow` names the tools that run as anywhere."""

    def __init__(self, allow: Iterable[str], lineage: Lineage) -> None:
        self._allow = frozenset(allow)
        self._before = _results(lineage.inherited)
        self._beyond = _results(lineage.beyond)
        self._given: Counter[Key] = Counter()

    def decide(self, call: ToolCall, tool: Tool, decision: Decision) -> Decision:
        """What becomes of a call that the policy allows or holds."""
        if tool.name in self._allow:
            return decision
        return Decision(Ruling.ALLOW, GIVEN) if self._recorded(key_of(call)) else deny(DENIED)

    def ruled(self, rule: str) -> bool:
        """Whether a recorded ruling was the sandbox's, not the policy's."""
        return rule in (DENIED, GIVEN, HELD)

    def take(self, call: ToolCall) -> ev.ToolResult | None:
        """What the next recorded call like this one gave; None when there is none."""
        key = key_of(call)
        found, number = self._recorded(key), self._given[key]
        self._given[key] += 1
        return found[min(number, len(found) - 1)] if found else None

    def _recorded(self, key: Key) -> list[ev.ToolResult]:
        return self._beyond.get(key) or self._before.get(key, [])[-1:]


class Successor(Sandbox):
    """Of one fork that takes over."""

    def __init__(self, lineage: Lineage) -> None:
        super().__init__((), Lineage((), lineage.beyond))
        happened = {
            key: [one for one in results if one.status not in WITHOUT_EFFECT] for key, results in self._beyond.items()
        }
        self._beyond = {key: results for key, results in happened.items() if results}
        self._acted = frozenset(name for name, _ in self._beyond)

    def decide(self, call: ToolCall, tool: Tool, decision: Decision) -> Decision:
        """What becomes of a call that the policy allows or holds."""
        if tool.effect in HARMLESS or tool.name not in self._acted:
            return decision
        if self._recorded(key_of(call)):
            return Decision(Ruling.ALLOW, GIVEN)
        words = f"{decision.reason}; {HELD}" if decision.reason else HELD
        return decision._replace(ruling=Ruling.HOLD, rule=HELD, reason=words)


def sandbox_of(fork: Fork, lineage: Lineage) -> Sandbox:
    """The one that a fork's calls go through."""
    return Successor(lineage) if fork.takes_over else Sandbox(fork.allow, lineage)


def key_of(call: ToolCall) -> Key:
    return call.tool, hashlib.sha256(call.arguments.encode("utf-8", "replace")).digest()


def _results(events: Iterable[Event]) -> dict[Key, list[ev.ToolResult]]:
    """In the order of the intents. Each run has call ids of its own."""
    proposed: dict[tuple[str, str], Key] = {}
    calls: dict[tuple[str, str], list[Key]] = {}
    found: dict[Key, list[ev.ToolResult]] = {}
    by_call: dict[tuple[str, str], ev.ToolResult] = {}
    for event in events:
        body, run = event.body, event.envelope.trajectory_id
        if isinstance(body, ev.ModelReplied):
            proposed.update(((run, call.call_id), key_of(call)) for call in body.tool_calls)
        elif isinstance(body, ev.ToolIntent):
            made, one = (body.tool, body.arguments.hash), (run, body.call_id)
            calls[one] = list(dict.fromkeys((made, proposed.get(one, made))))
        elif isinstance(body, ev.ToolResult):
            by_call[run, body.call_id] = body
    for one, keys in calls.items():
        for key in keys if one in by_call else ():
            found.setdefault(key, []).append(by_call[one])
    return found
