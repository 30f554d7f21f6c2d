"""What the chain and the verdict cost an event, without I/O."""

from __future__ import annotations

from benchmarks.measure import Measure, best_us
from benchmarks.writing import EVENT, NOW_US
from tracklog.schemas.chain import event_hash
from tracklog.schemas.codec import decode_event, encode_event, split_frame
from tracklog.schemas.events import OwnershipClaimed
from tracklog.schemas.fold import fold
from tracklog.schemas.head import advance, judge
from tracklog.schemas.stamp import Stamp, trajectory_prefix
from tracklog.schemas.state import State
from tracklog.schemas.values import ZERO_HASH, Driver

KEY = "bench-chain"


def measure_chain() -> list[Measure]:
    prefix = trajectory_prefix(KEY, "default")
    claim = encode_event(
        Stamp(KEY, prefix, 0, 0, 0, 1, NOW_US, ZERO_HASH),
        OwnershipClaimed(owner="bench", nonce=bytes(16), driver=Driver.LIBRARY),
    )
    stamp = Stamp(KEY, prefix, 1, 1, 1, 2, NOW_US, claim.hash)
    encoded = encode_event(stamp, EVENT)
    state, _ = fold(State(KEY), decode_event(KEY.encode(), claim.value, claim.headers))
    event = decode_event(KEY.encode(), encoded.value, encoded.headers)
    fingerprint, payload = split_frame(encoded.value, {})
    hashing = best_us(lambda: event_hash(fingerprint, payload), number=5000)
    verdict = best_us(lambda: advance(state.head, event, judge(state.head, event)), number=5000)
    return [
        Measure("chain and verdict", hashing + verdict, "us/event", "at most", 20),
        Measure("encode, 600 bytes", best_us(lambda: encode_event(stamp, EVENT), number=3000), "us/event"),
        Measure(
            "decode and check",
            best_us(lambda: decode_event(KEY.encode(), encoded.value, encoded.headers), number=3000),
            "us/event",
        ),
        Measure("fold", best_us(lambda: fold(state, event), number=3000), "us/event"),
    ]
