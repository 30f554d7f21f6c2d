"""Who may decide about a held call, until when, and who is asked then (DESIGN §9). Pure.

An entry of `may_approve` is a person's name, or what a credential must have, every word of it:

    ada                           the person of that name
    role:manager                  whoever has the role
    role:manager tenant:acme      whoever has the role, and is of the tenant

No entry at all is anybody. In either case it is never the one on whose behalf the trajectory works, unless the request
says so, and nobody whose credential is of other tenants only. What the body of a request has no field for stands in its
`ext`: the call's tool, whether the requester may decide, who is asked next, how often others were asked before. The
identity of who decides stands in the `ext` of the Decision, from the credential, and of the event that takes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from tracklog.schemas.events import ApprovalRequested
from tracklog.schemas.lifecycle import EXT_LANE, lane_of
from tracklog.schemas.values import OnExpiry

__all__ = ["Approver", "Request", "Step", "escalated", "is_escalation", "may_not", "request_of", "terms_ext", "who_may"]

ALL_TENANTS: Final = "*"
ROLE: Final = "role:"
TENANT: Final = "tenant:"
STEPS_MAX: Final = 8
"""How often others are asked after the first: a request ends."""

DIGITS_MAX: Final = 10
EXPIRES_S_MAX: Final = 1e9

EXT_TOOL: Final = "tool"
EXT_REQUESTER: Final = "requester_may"
EXT_THEN: Final = "then"
EXT_STEP: Final = "step"
EXT_ROLES: Final = "roles"
EXT_TENANTS: Final = "tenants"


class Approver(NamedTuple):
    """Who decides, as their credential says. Without tenants: of whichever, as one who reaches the log itself."""

    name: str
    roles: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()

    @property
    def ext(self) -> Mapping[str, str]:
        """For the Decision, and for the event that takes it."""
        said = {EXT_ROLES: self.roles, EXT_TENANTS: self.tenants}
        return {key: orjson.dumps(sorted(words)).decode() for key, words in said.items() if words}

    @classmethod
    def said(cls, name: str, ext: Mapping[str, str]) -> Approver:
        """The inverse of `ext`; what cannot be read gives no right."""
        return cls(name, frozenset(_words(ext.get(EXT_ROLES))), frozenset(_words(ext.get(EXT_TENANTS))))


class Step(NamedTuple):
    """Who is asked when nobody before has answered, and for how long. None: for ever."""

    may_approve: tuple[str, ...]
    expires_in_s: float | None = None


class Request(NamedTuple):
    """An open request. `then` are who is asked after it, in order; `step` how many were asked before."""

    hash: bytes
    argument_hash: bytes
    seq: int
    lane: int = 0
    may_approve: tuple[str, ...] = ()
    requester_may: bool = False
    expires_at: int | None = None
    reason: str = ""
    tool: str = ""
    then: tuple[Step, ...] = ()
    step: int = 0


def request_of(body: ApprovalRequested, event_hash: bytes, seq: int, ext: Mapping[str, str]) -> Request:
    """As it was recorded."""
    step = ext.get(EXT_STEP, "0")
    return Request(
        hash=event_hash,
        argument_hash=body.argument_hash,
        seq=seq,
        lane=lane_of(ext),
        may_approve=body.may_approve,
        requester_may=ext.get(EXT_REQUESTER) == "true",
        expires_at=body.expires_at,
        reason=body.reason,
        tool=ext.get(EXT_TOOL, ""),
        then=_steps(ext.get(EXT_THEN)) if body.on_expiry is OnExpiry.ESCALATE else (),
        step=int(step) if step.isdecimal() and len(step) < DIGITS_MAX else 0,
    )


def terms_ext(tool: str, requester_may: bool, then: Sequence[Step], step: int = 0) -> dict[str, str]:
    """What a request says beside its body; the lane is added by who numbers them."""
    ext = {EXT_TOOL: tool}
    if requester_may:
        ext[EXT_REQUESTER] = "true"
    if then:
        ext[EXT_THEN] = orjson.dumps([[list(one.may_approve), one.expires_in_s] for one in then]).decode()
    if step:
        ext[EXT_STEP] = str(step)
    return ext


def is_escalation(ext: Mapping[str, str]) -> bool:
    """True for a request that takes the place of one that nobody answered: no program asked for it."""
    return EXT_STEP in ext


def escalated(call_id: str, request: Request, now_us: int) -> tuple[ApprovalRequested, Mapping[str, str]]:
    """The request to who is asked after this one, with its `ext`. There must be somebody."""
    following, *then = request.then
    within_s = following.expires_in_s
    body = ApprovalRequested(
        call_id=call_id,
        argument_hash=request.argument_hash,
        may_approve=following.may_approve,
        expires_at=None if within_s is None else now_us + int(within_s * 1_000_000),
        on_expiry=OnExpiry.ESCALATE if then else OnExpiry.DENY,
        reason=request.reason,
    )
    ext = terms_ext(request.tool, request.requester_may, then, request.step + 1)
    return body, {**ext, EXT_LANE: str(request.lane)}


def may_not(
    may_approve: Sequence[str], requester_may: bool, who: Approver, *, tenant: str, requester: str | None
) -> str:
    """Why this one may not decide, in words; "" for one who may. `requester`: on whose behalf the trajectory works."""
    if who.tenants and not _of_tenant(who, tenant):
        return f"{who.name} is not of tenant {tenant}"
    if requester is not None and who.name == requester and not requester_may:
        return f"{who.name} asked for this work, and may not approve it"
    if may_approve and not any(_fits(entry, who) for entry in may_approve):
        return f"{who.name} may not decide: that is for {who_may(may_approve)}"
    return ""


def who_may(may_approve: Sequence[str]) -> str:
    """In words, for people."""
    return " or ".join(_readable(entry) for entry in may_approve) if may_approve else "anybody"


def _readable(entry: str) -> str:
    if not _is_demand(entry):
        return entry
    words = {ROLE: "the role ", TENANT: "tenant "}
    said = [f"{words[kind]}{word.removeprefix(kind)}" for word in entry.split() for kind in words if kind in word]
    return " of ".join(said)


def _fits(entry: str, who: Approver) -> bool:
    return all(_has(word, who) for word in entry.split()) if _is_demand(entry) else entry == who.name


def _is_demand(entry: str) -> bool:
    return entry.startswith((ROLE, TENANT))


def _has(word: str, who: Approver) -> bool:
    if word.startswith(ROLE):
        return word.removeprefix(ROLE) in who.roles
    return word.startswith(TENANT) and _of_tenant(who, word.removeprefix(TENANT))


def _of_tenant(who: Approver, tenant: str) -> bool:
    return tenant in who.tenants or ALL_TENANTS in who.tenants


def _words(text: str | None) -> list[str]:
    try:
        found = orjson.loads(text) if text is not None else []
    except orjson.JSONDecodeError:
        return []
    return [word for word in found if isinstance(word, str)] if isinstance(found, list) else []


def _steps(text: str | None) -> tuple[Step, ...]:
    """What cannot be read is nobody: the request then ends with its own time."""
    try:
        found = orjson.loads(text) if text is not None else []
        steps = [Step(tuple(map(str, names)), None if s is None else float(s)) for names, s in found[:STEPS_MAX]]
    except (orjson.JSONDecodeError, TypeError, ValueError):
        return ()
    return tuple(steps) if all(s is None or 0 < s < EXPIRES_S_MAX for _, s in steps) else ()
