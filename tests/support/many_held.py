"""A log with many held calls that nobody has decided about, written without sessions: two events each."""

from __future__ import annotations

import hashlib
from typing import Final

from tracklog.infra.log.port import Log
from tracklog.schemas.approvals import terms_ext
from tracklog.schemas.codec import encode_event
from tracklog.schemas.events import ApprovalRequested, OwnershipClaimed
from tracklog.schemas.stamp import Stamp, trajectory_prefix
from tracklog.schemas.topics import Topics
from tracklog.schemas.values import ZERO_HASH, Driver

__all__ = ["TENANTS", "fill_held"]

TENANTS: Final = ("acme", "other", "third")
ARGUMENTS: Final = hashlib.sha256(b'{"what":"it"}').digest()
FLUSH_S: Final = 60.0


def fill_held(log: Log, count: int, *, expires_us: int, now_us: int) -> None:
    """One request of each trajectory, of three tenants in turn. Raises RuntimeError when the log does not take them."""
    failed: list[object] = []
    for number in range(count):
        name = f"order-{number:08}-of-the-day"
        prefix = trajectory_prefix(name, TENANTS[number % len(TENANTS)])
        claim = encode_event(
            Stamp(name, prefix, 0, 0, 0, 0, now_us, ZERO_HASH),
            OwnershipClaimed(owner="many", nonce=bytes(16), driver=Driver.WORKER),
        )
        asked = ApprovalRequested(
            call_id=f"call-{number}",
            argument_hash=ARGUMENTS,
            may_approve=("ada", "role:manager tenant:acme"),
            expires_at=expires_us,
            reason="more than the desk may give",
        )
        stamp = Stamp(name, prefix, 1, 1, 1, 1, now_us, claim.hash, ext=terms_ext("refund", False, ()))
        for one in (claim, encode_event(stamp, asked)):
            log.append(
                Topics().events,
                name.encode(),
                one.value,
                one.headers,
                lambda _, error: failed.append(error) if error is not None else None,
            )
        if number % 1000 == 999:
            log.flush(FLUSH_S)
    if log.flush(FLUSH_S) > 0 or failed:
        raise RuntimeError(f"the log did not take all of it: {failed[:3]}")
