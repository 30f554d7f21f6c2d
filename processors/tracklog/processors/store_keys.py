"""Names of keys in Redis. The partition is the hash tag: all keys of one lie in one slot of a cluster (DESIGN §10).

PREFIX:projection:NAME                 hash: the version that readers follow, and the partition count
PREFIX:{PARTITION}:NAME:vVERSION:...   everything of one partition in one version of a projection
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CHECKPOINT: Final = "checkpoint"


def pointer_key(prefix: str, name: str) -> str:
    return f"{prefix}:projection:{name}"


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """The keys of one version of a projection. `prefix` is the installation's (`Topics.prefix`)."""

    prefix: str
    name: str
    version: int

    def base(self, partition: int) -> str:
        return f"{self.prefix}:{{{partition}}}:{self.name}:v{self.version}:"

    def key(self, partition: int, relative: str) -> str:
        return self.base(partition) + relative

    def checkpoint(self, partition: int) -> str:
        return self.key(partition, CHECKPOINT)
