"""How a fork begins, as its TaskStarted says it: where it left its origin, what it may do, a reply and a policy file
that it was given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from tracklog.producers.models import ModelAnswer, calls_of
from tracklog.producers.policy_file import PolicyFile
from tracklog.producers.record import JSON, TEXT, Record
from tracklog.producers.setup import Setup
from tracklog.producers.versions import digest
from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.errors import InputError
from tracklog.schemas.values import Ref

__all__ = ["Fork"]

EXT_ALLOWED: Final = "fork_allowed"
"""In `ext` of TaskStarted: the names of the tools that are not sandboxed, as JSON."""
EXT_REPLY: Final = "fork_reply"
"""In `ext` of TaskStarted: the hash of the blob with the reply that was given."""
EXT_TAKES_OVER: Final = "fork_takes_over"
"""In `ext` of TaskStarted: the run that it goes on with, instead of beside it."""
EXT_POLICY: Final = "fork_policy"
"""In `ext` of TaskStarted: the hash of the blob with the policy file that was given."""


@dataclass(frozen=True, slots=True)
class Fork:
    """`turn` is the first of its own. `reply` and `policy` (a policy file) are texts, or hashes of stored ones.

    `takes_over`: the run that it goes on with, live; "" for a fork beside its origin, whose tools are sandboxed.
    """

    origin: Ref
    turn: int
    allow: tuple[str, ...] = ()
    reply: str | bytes | None = None
    policy: str | bytes | None = None
    takes_over: str = ""

    @staticmethod
    def recorded(events: Iterable[Event]) -> Fork | None:
        """As these accepted events say; None when they are of no fork, or of none that was started."""
        for event in events:
            body, ext = event.body, event.envelope.ext
            if isinstance(body, ev.TaskStarted):
                if body.origin is None:
                    return None
                reply, policy = (bytes.fromhex(ext[key]) if key in ext else None for key in (EXT_REPLY, EXT_POLICY))
                allow = tuple(orjson.loads(ext.get(EXT_ALLOWED, "[]")))
                return Fork(body.origin, body.inherited_turn, allow, reply, policy, ext.get(EXT_TAKES_OVER, ""))
        return None

    @property
    def reply_hash(self) -> bytes | None:
        return digest(self.reply) if isinstance(self.reply, str) else self.reply

    @property
    def policy_hash(self) -> bytes | None:
        return digest(self.policy) if isinstance(self.policy, str) else self.policy

    @property
    def ext(self) -> dict[str, str]:
        """What of it TaskStarted has no field for."""
        ext = {EXT_ALLOWED: orjson.dumps(self.allow).decode()}
        if self.reply_hash is not None:
            ext[EXT_REPLY] = self.reply_hash.hex()
        if self.policy_hash is not None:
            ext[EXT_POLICY] = self.policy_hash.hex()
        if self.takes_over:
            ext[EXT_TAKES_OVER] = self.takes_over
        return ext

    def differs(self, other: Fork) -> str:
        """In what the other one begins otherwise, "" for nothing."""
        pairs = {
            "origin": (self.origin, other.origin),
            "turn": (self.turn, other.turn),
            "tools allowed": (self.allow, other.allow),
            "reply": (self.reply_hash, other.reply_hash),
            "policy": (self.policy_hash, other.policy_hash),
            "run that it takes over": (self.takes_over, other.takes_over),
        }
        return ", ".join(name for name, (mine, its) in pairs.items() if mine != its)

    async def put(self, record: Record) -> None:
        """Stores what the start names."""
        if isinstance(self.reply, str):
            await record.put(self.reply, JSON)
        if isinstance(self.policy, str):
            await record.put(self.policy, TEXT)

    def ruled(self, setup: Setup) -> Setup:
        """The setup with the policy file that was given, when one was. Blocks; raises BlobMissing, BlobAltered."""
        if not isinstance(self.policy, bytes):
            return setup
        return replace(setup, policy=PolicyFile(setup.store.get(self.policy.hex()), "of this fork"))

    async def answer(self, record: Record, turn: int) -> ModelAnswer | None:
        """The reply that was given for this turn, None when the model is to be asked. Raises InputError."""
        if self.reply is None or turn != self.turn:
            return None
        text = self.reply if isinstance(self.reply, str) else await record.stored(self.reply)
        return given_answer(text)


def given_answer(text: str) -> ModelAnswer:
    """The reply in a text: a message of an assistant as JSON, or its words. Raises InputError, ModelMalformed."""
    message = _message(text)
    if message.get("role", "assistant") != "assistant":
        raise InputError(f"a reply with the role {message['role']!r}", hint='give {"role": "assistant", ...}')
    message = {"role": "assistant", **message}
    return ModelAnswer(message=message, tool_calls=calls_of(message), stop_reason="given")


def _message(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {"content": text}
