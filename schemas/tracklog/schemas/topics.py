"""The five topics: their names, their settings, and why each setting is what it is (DESIGN §4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from tracklog.schemas.errors import SettingsError

Barrier = Literal["none", "replicated", "fsync"]
BARRIER_ORDER: Final[tuple[Barrier, ...]] = ("none", "replicated", "fsync")

_PREFIX = re.compile(r"[a-z][a-z0-9_.-]{0,60}\Z")


@dataclass(frozen=True, slots=True)
class Topics:
    """The names that one installation owns on a cluster. `prefix` also starts its groups, Redis keys and ACLs."""

    prefix: str = "tracklog"

    def __post_init__(self) -> None:
        if not _PREFIX.match(self.prefix):
            raise SettingsError(
                f"prefix {self.prefix!r} is not usable as a topic prefix",
                hint="use lower-case letters, digits, '.', '_' or '-', starting with a letter, at most 61 characters",
            )

    @property
    def events(self) -> str:
        return f"{self.prefix}.events"

    @property
    def inbox(self) -> str:
        return f"{self.prefix}.inbox"

    @property
    def attempts(self) -> str:
        return f"{self.prefix}.attempts"

    @property
    def quarantine(self) -> str:
        return f"{self.prefix}.quarantine"

    @property
    def controls(self) -> str:
        return f"{self.prefix}.controls"

    @property
    def all(self) -> tuple[str, str, str, str, str]:
        return (self.events, self.inbox, self.attempts, self.quarantine, self.controls)

    def group(self, role: str) -> str:
        """Consumer-group name of a role, e.g. `tracklog.projection-state-v1`."""
        return f"{self.prefix}.{role}"


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it should be: wanted partition count, replication factor and settings."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


def topic_specs(
    topics: Topics,
    *,
    partitions: int,
    replication_factor: int,
    min_insync_replicas: int,
    max_message_bytes: int,
) -> tuple[TopicSpec, ...]:
    """The wanted settings of all five topics; they share one partition count, fixed for life.

    With fewer than two in-sync replicas an acknowledgement is one machine's memory, so such topics are
    created with `flush.messages=1`: the barrier is then the disk.
    """
    config = {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": str(min_insync_replicas),
        "unclean.leader.election.enable": "false",
        "max.message.bytes": str(max_message_bytes),
    }
    if min_insync_replicas < 2:
        config["flush.messages"] = "1"
    return tuple(TopicSpec(name, partitions, replication_factor, config) for name in topics.all)


def barrier_of(config: Mapping[str, str]) -> Barrier:
    """The strongest barrier level that a topic with these settings gives (DESIGN §5)."""
    if config.get("flush.messages") == "1":
        return "fsync"
    if int(config.get("min.insync.replicas", "1")) >= 2:
        return "replicated"
    return "none"
