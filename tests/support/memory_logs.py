"""A log in memory with the topics of an installation."""

from __future__ import annotations

from tracklog.infra.log.open import open_log
from tracklog.infra.log.port import Log
from tracklog.schemas.limits import MESSAGE_BYTES_MAX
from tracklog.schemas.topics import Topics, topic_specs


def memory_log(partitions: int, *prefixes: str) -> Log:
    """Topics of each prefix, `tracklog` when none is given."""
    log = open_log("memory:")
    for prefix in prefixes or ("tracklog",):
        make_topics(log, prefix, partitions)
    return log


def make_topics(log: Log, prefix: str, partitions: int) -> None:
    log.create(
        topic_specs(
            Topics(prefix),
            partitions=partitions,
            replication_factor=1,
            min_insync_replicas=1,
            max_message_bytes=MESSAGE_BYTES_MAX,
        )
    )
