"""Runs to test processors with: encoded events, each chained to the one before, as a log would hold them.

`Chain` adds one event after another with the right seq, epoch and prev_hash; `run_of` is a whole small run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tracklog.infra.log.port import Headers
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Framing, encode_event, single_object
from tracklog.schemas.stamp import Stamp, trajectory_prefix
from tracklog.schemas.values import (
    ZERO_HASH,
    Body,
    ContextEdit,
    Driver,
    EditOp,
    Effect,
    Ending,
    InboxId,
    Place,
    Ref,
    ResultStatus,
    Role,
    Ruling,
    Settled,
    ToolCall,
    Usage,
)

__all__ = ["RECORDED_AT_US", "Chain", "Made", "interleaved", "run_of"]

RECORDED_AT_US: Final = 1_700_000_000_000_000


class Made(NamedTuple):
    """A record ready to append. `hash` is what the next event of its trajectory carries."""

    key: bytes
    value: bytes
    headers: Headers
    hash: bytes


class Chain:
    """The events of one trajectory so far, in order, in `records`. Each method adds one and returns it."""

    def __init__(
        self,
        trajectory_id: str,
        *,
        tenant: str = "default",
        driver: Driver = Driver.IMPORT,
        framing: Framing = single_object,
    ) -> None:
        self.trajectory_id = trajectory_id
        self.tenant = tenant
        self.driver = driver
        self.framing = framing
        self.seq, self.epoch, self.hash = 0, 0, ZERO_HASH
        self.records: list[Made] = []

    def claim(self, owner: str = "owner") -> Made:
        """A new epoch, with a nonce that depends on id, owner and epoch alone."""
        made = self.add(ev.OwnershipClaimed(owner=owner, nonce=self._nonce(owner), driver=self.driver))
        self.epoch += 1
        return made

    def add(self, body: ev.EventBody, **stamp: Any) -> Made:
        """`stamp` as `peek` takes it."""
        made = self.peek(body, **stamp)
        self.seq, self.hash = self.seq + 1, made.hash
        self.records.append(made)
        return made

    def peek(
        self,
        body: ev.EventBody,
        *,
        turn: int = 0,
        inbox_id: InboxId | None = None,
        inbox_position: int | None = None,
        causes: tuple[Ref, ...] = (),
        ext: Mapping[str, str] | None = None,
    ) -> Made:
        """The record that `add` would give, without adding it: a rival's, a lost one."""
        stamp = Stamp(
            self.trajectory_id,
            trajectory_prefix(self.trajectory_id, self.tenant),
            self.seq,
            self.epoch,
            turn,
            lamport=self.seq,
            recorded_at=RECORDED_AT_US + self.seq,
            prev_hash=self.hash,
            inbox_id=inbox_id,
            inbox_position=inbox_position,
            causes=causes,
            ext=ext if ext is not None else {},
        )
        encoded = encode_event(stamp, body, self.framing)
        return Made(self.trajectory_id.encode(), encoded.value, encoded.headers, encoded.hash)

    def _nonce(self, owner: str) -> bytes:
        return hashlib.sha256(f"{self.trajectory_id}/{owner}/{self.epoch}".encode()).digest()[:16]


def run_of(
    trajectory_id: str,
    *,
    turns: int = 2,
    tenant: str = "default",
    tools: Sequence[str] = ("lookup",),
    model: str = "test-model",
    labels: Mapping[str, str] | None = None,
    ending: Ending | None = Ending.COMPLETED,
    padding: int = 0,
    framing: Framing = single_object,
) -> Chain:
    """A whole run: claim, start, for each turn context, reply, authorization, intent and result, then the end.

    6 events a turn and 4 around them (3 with `ending=None`: still running). `padding` bytes make replies longer.
    """
    chain = Chain(trajectory_id, tenant=tenant, framing=framing)
    chain.claim()
    chain.add(
        ev.TaskStarted(driver=chain.driver, task=Body.of("do it"), agent="agent", model=model, labels=labels or {})
    )
    chain.add(ev.MessageReceived(peer="user", role=Role.USER, message=Body.of("please")))
    for turn in range(1, turns + 1):
        _add_turn(chain, turn, tools[(turn - 1) % len(tools)], model, padding)
    if ending is not None:
        chain.add(ev.TaskEnded(ending=ending, result=Body.of("done")), turn=turns)
    return chain


def _add_turn(chain: Chain, turn: int, tool: str, model: str, padding: int) -> None:
    call_id = f"call-{turn}"
    first = chain.seq - 1
    edits: tuple[ContextEdit, ...] = (ContextEdit(op=EditOp.ADD, seqs=(first,)),)
    if turn > 1:
        edits = (ContextEdit(op=EditOp.KEEP, count=turn - 1), *edits)
    digest = hashlib.sha256(call_id.encode()).digest()
    chain.add(ev.ContextBuilt(edits=edits, context_hash=digest, messages=turn, rule_version="all-1"), turn=turn)
    chain.add(
        ev.ModelReplied(
            reply=Body.of(f"calling {tool}" + "." * padding),
            tool_calls=(ToolCall(call_id=call_id, tool=tool, arguments='{"n": 1}'),),
            stop_reason="tool_calls",
            usage=Usage(input_tokens=100, output_tokens=10),
            cost_micro_usd=250,
            model_served=model,
        ),
        turn=turn,
    )
    chain.add(ev.Authorized(call_id=call_id, ruling=Ruling.ALLOW, policy_version="none"), turn=turn)
    chain.add(
        ev.ToolIntent(
            call_id=call_id,
            tool=tool,
            arguments=Body.of('{"n": 1}'),
            effect=Effect.OPAQUE,
            place=Place.RECORDED,
        ),
        turn=turn,
    )
    chain.add(
        ev.ToolResult(
            call_id=call_id,
            status=ResultStatus.OK,
            output=Body.of("1" * (padding // 4)),
            settled=Settled.RECORDED,
            duration_ms=5,
        ),
        turn=turn,
    )
    chain.add(ev.MessageSent(peer="user", message=Body.of(f"turn {turn} done")), turn=turn)


def interleaved(chains: Iterable[Chain]) -> list[Made]:
    """The records of many chains, one of each in turn: as many agents at work would write them."""
    left = [list(chain.records) for chain in chains]
    out: list[Made] = []
    for step in range(max((len(records) for records in left), default=0)):
        out.extend(records[step] for records in left if step < len(records))
    return out
