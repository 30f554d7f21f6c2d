"""Which partition a key belongs to: Java's default partitioner, bit for bit.

Every client of an installation must agree, or one trajectory is split over two partitions. Java hashes with
murmur2; librdkafka does so only when told (`partitioner=murmur2_random`). The embedded logs use this
function, and the contract suite checks that a keyed produce to Kafka lands where it says.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tracklog.schemas.errors import InvalidTrajectoryId, SettingsError

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_CACHE_KEYS_MAX: Final = 65_536
"""Hot trajectories of one process; about 10 MB when full of 40-byte keys."""


def murmur2(data: bytes) -> int:
    """`org.apache.kafka.common.utils.Utils.murmur2`, as an unsigned 32-bit integer."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = (int.from_bytes(data[at : at + 4], "little") * _M) & _MASK
        k = ((k ^ (k >> 24)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if whole != length:
        h = ((h ^ int.from_bytes(data[whole:], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=_CACHE_KEYS_MAX)
def partition_of(key: bytes, partitions: int) -> int:
    """The partition of `key` in a topic of `partitions` partitions.

    Raises InvalidTrajectoryId for an empty key (clients disagree about those, librdkafka #4510) and
    SettingsError for a partition count below 1.
    """
    if not key:
        raise InvalidTrajectoryId("the record key is empty", hint="the key is the trajectory id, in UTF-8")
    if partitions < 1:
        raise SettingsError(f"a topic cannot have {partitions} partitions")
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def why_stray(key: bytes | None, partition: int, partitions: int) -> str:
    """Why a record with this key has no place in this partition; empty when it is where it belongs.

    A client with another partitioner puts a trajectory's records where no reader of that trajectory looks: taken
    for events there, they would be a second trajectory of the same name.
    """
    if not key:
        return ""
    home = partition_of(key, partitions)
    if home == partition:
        return ""
    return f"its key belongs into partition {home}: it was written with another partitioner than murmur2"
