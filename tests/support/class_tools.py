"""A tool of each class whose effect the ledger service counts, for agents in processes of their own."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.ledger import effects_of, make_effect
from tracklog.producers.tools import CallContext, ProbeAnswer, Probed, Tool, tool

KEY_TTL_S = 86_400


def class_tools(
    ledger_url: str, before: Callable[[CallContext], None], after: Callable[[CallContext], None], *, timeout_s: float
) -> tuple[Tool, Tool, Tool]:
    """(idempotent, probe, opaque), named by their class; `before` and `after` are called around each effect."""

    def effect(context: CallContext, key: str | None) -> str:
        before(context)
        receipt = make_effect(ledger_url, context.call_id, key)
        after(context)
        return receipt

    def found(context: CallContext) -> Probed:
        there = effects_of(ledger_url, context.call_id) > 0
        return Probed(ProbeAnswer.HAPPENED if there else ProbeAnswer.ABSENT, f"receipt for {context.call_id}")

    @tool(effect="idempotent", timeout_s=timeout_s, key_ttl_s=KEY_TTL_S)
    def idempotent(what: str, context: CallContext) -> str:
        return effect(context, context.idempotency_key)

    @tool(effect="probe", timeout_s=timeout_s, probe=found)
    def probe(what: str, context: CallContext) -> str:
        return effect(context, None)

    @tool(effect="opaque", timeout_s=timeout_s)
    def opaque(what: str, context: CallContext) -> str:
        return effect(context, None)

    return idempotent, probe, opaque
