"""Settings that a provider of Kafka lets nobody alter are told apart from those that one can put right."""

from __future__ import annotations

from tracklog.infra.log.memory import MemoryLog
from tracklog.infra.log.memory_store import MemoryStore
from tracklog.infra.log.port import TopicInfo
from tracklog.infra.topic_admin import apply
from tracklog.schemas.topics import Topics, topic_specs


class Provided(MemoryLog):
    """A log whose provider keeps one setting to itself."""

    def describe(self, topic: str) -> TopicInfo:
        return super().describe(topic)._replace(fixed=frozenset({"max.message.bytes"}))


def test_what_the_provider_fixes_is_said_to_be_fixed() -> None:
    log = Provided(MemoryStore(), now_ms=lambda: 0)
    made, asked = (
        topic_specs(Topics(), partitions=1, replication_factor=1, min_insync_replicas=1, max_message_bytes=size)[:1]
        for size in (1_048_576, 2_097_152)
    )
    apply(log, made)

    (finding,) = apply(log, asked).findings

    assert finding.fixed
    assert finding.weight == "required, fixed by the provider"
    assert "wanted 2097152 (required, fixed by the provider)" in str(finding)
