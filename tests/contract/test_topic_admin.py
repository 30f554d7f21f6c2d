"""Topics as found against topics as wanted, on every log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.contract.log_cases import LogCase
from tracklog.infra.log.port import Log
from tracklog.infra.topic_admin import Finding, apply, ensure_sound, ensure_writable, require_barrier, verify
from tracklog.schemas.errors import BarrierTooWeak, TopicMismatch
from tracklog.schemas.limits import MESSAGE_BYTES_MAX
from tracklog.schemas.topics import Topics, TopicSpec, topic_specs


def wanted(prefix: str) -> tuple[TopicSpec, ...]:
    return topic_specs(
        Topics(prefix), partitions=3, replication_factor=1, min_insync_replicas=1, max_message_bytes=MESSAGE_BYTES_MAX
    )


def test_missing_topics_are_named_then_created_then_sound(log: Log, log_case: LogCase) -> None:
    specs = wanted(log_case.prefix)
    assert verify(log, specs) == [Finding(spec.name, "topic", "present", "missing", "required") for spec in specs]

    applied = apply(log, specs)

    assert applied.created == [spec.name for spec in specs]
    assert applied.findings == []
    assert apply(log, specs) == ([], [])
    assert require_barrier(log, specs[0].name, "fsync") == "fsync"


def test_differences_are_told_and_nothing_is_altered(log: Log, log_case: LogCase) -> None:
    found = wanted(log_case.prefix)[0]
    apply(log, [found])
    asked = replace(
        found,
        partitions=4,
        replication_factor=2,
        config={**found.config, "cleanup.policy": "compact", "min.insync.replicas": "2", "max.message.bytes": "1000"},
    )

    findings = apply(log, [asked]).findings

    assert findings == [
        Finding(found.name, "partitions", "4", "3", "required"),
        Finding(found.name, "replication factor", "2", "1", "required"),
        Finding(found.name, "cleanup.policy", "compact", "delete", "required"),
        Finding(found.name, "min.insync.replicas", "2", "1", "required"),
    ]
    with pytest.raises(TopicMismatch, match=r"partitions is 3, wanted 4 .*cleanup\.policy is delete"):
        ensure_sound(findings)
    assert log.partition_count(found.name) == 3
    assert verify(log, [found]) == []


def test_advice_does_not_stop_anybody(log: Log, log_case: LogCase) -> None:
    spec = wanted(log_case.prefix)[0]
    apply(log, [spec])
    asked = replace(spec, config={**spec.config, "segment.bytes": "2000000"})
    (finding,) = verify(log, [asked])
    assert (finding.setting, finding.severity) == ("segment.bytes", "advised")
    ensure_sound([finding])


def test_barrier_is_read_from_the_topic(log: Log, log_case: LogCase) -> None:
    weak = log_case.topic(log)
    if log_case.kind == "sqlite":
        assert require_barrier(log, weak, "fsync") == "fsync"
        return
    assert log.describe(weak).barrier == "none"
    with pytest.raises(BarrierTooWeak, match="'replicated'"):
        require_barrier(log, weak, "replicated")


def test_topics_are_written_to_only_when_their_guarantees_hold(log: Log, log_case: LogCase) -> None:
    specs = wanted(log_case.prefix)
    apply(log, specs)
    ensure_writable(log, [replace(spec, partitions=7) for spec in specs])
    with pytest.raises(TopicMismatch, match=r"partitions is 3, wanted 7"):
        ensure_writable(log, [*specs[:3], replace(specs[3], partitions=7)])
    with pytest.raises(TopicMismatch, match=r"retention\.ms is -1, wanted 60000 \(required\).*tracklog topics verify"):
        ensure_writable(log, [replace(specs[0], config={**specs[0].config, "retention.ms": "60000"})])
