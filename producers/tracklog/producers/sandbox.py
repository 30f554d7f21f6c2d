"""The sandbox of a fork: nothing happens again, and nothing new happens, unless its tool was allowed by name.

A call with the tool and the arguments of a call in the origin is given what that one gave; the n-th such call, what
the n-th gave after the fork, and the last of them again when there are no more. A call whose arguments a person edited
goes by these, and by the ones that the model proposed. Any other call is denied.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tracklog.producers.lineage import Lineage
from tracklog.producers.policy import Decision, deny
from tracklog.producers.tools import Tool
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.values import Ruling, ToolCall

__all__ = ["DENIED", "GIVEN", "Sandbox"]

DENIED: Final = "sandboxed"
GIVEN: Final = "sandboxed: given as recorded"
"""The rules of rulings that the sandbox made."""

Key = tuple[str, bytes]
"""Tool and hash of the arguments."""


class Sandbox:
    """Of one fork. `allow` names the tools that run as anywhere."""

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
        return rule in (DENIED, GIVEN)

    def take(self, call: ToolCall) -> ev.ToolResult | None:
        """What the next recorded call like this one gave; None when there is none."""
        key = key_of(call)
        found, number = self._recorded(key), self._given[key]
        self._given[key] += 1
        return found[min(number, len(found) - 1)] if found else None

    def _recorded(self, key: Key) -> list[ev.ToolResult]:
        return self._beyond.get(key) or self._before.get(key, [])[-1:]


def key_of(call: ToolCall) -> Key:
    return call.tool, hashlib.sha256(call.arguments.encode("utf-8", "replace")).digest()


def _results(events: Iterable[Event]) -> dict[Key, list[ev.ToolResult]]:
    """In the order of the intents."""
    proposed: dict[str, Key] = {}
    calls: dict[str, list[Key]] = {}
    found: dict[Key, list[ev.ToolResult]] = {}
    by_call: dict[str, ev.ToolResult] = {}
    for event in events:
        body = event.body
        if isinstance(body, ev.ModelReplied):
            proposed.update((call.call_id, key_of(call)) for call in body.tool_calls)
        elif isinstance(body, ev.ToolIntent):
            made = (body.tool, body.arguments.hash)
            calls[body.call_id] = list(dict.fromkeys((made, proposed.get(body.call_id, made))))
        elif isinstance(body, ev.ToolResult):
            by_call[body.call_id] = body
    for call_id, keys in calls.items():
        for key in keys if call_id in by_call else ():
            found.setdefault(key, []).append(by_call[call_id])
    return found
