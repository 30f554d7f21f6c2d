"""Names of keys in Redis. The partition is the hash tag: all keys of one lie in one slot of a cluster (DESIGN §10).

PREFIX:projection:NAME                       hash: the version that readers follow, the build of each version, the
                                             layout of each version, and the partition count
PREFIX:{PARTITION}:NAME:vVERSION[.BUILD]:... everything of one partition in one build of a version of a projection
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CHECKPOINT: Final = "checkpoint"


def build_field(version: int) -> str:
    """The pointer's field that names the build of a version."""
    return f"build:v{version}"


def layout_field(version: int) -> str:
    """The pointer's field that says the layout of a version."""
    return f"layout:v{version}"


def pointer_key(prefix: str, name: str) -> str:
    return f"{prefix}:projection:{name}"


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """The keys of one version of a projection. `prefix` is the installation's (`Topics.prefix`). A version is built
    again beside itself when it is folded anew: the first build is 0."""

    prefix: str
    name: str
    version: int
    build: int = 0

    def base(self, partition: int) -> str:
        build = f".{self.build}" if self.build else ""
        return f"{self.prefix}:{{{partition}}}:{self.name}:v{self.version}{build}:"

    def key(self, partition: int, relative: str) -> str:
        return self.base(partition) + relative

    def checkpoint(self, partition: int) -> str:
        return self.key(partition, CHECKPOINT)
