"""Topics as they should be against topics as they are (DESIGN §4). Creates what is missing, alters nothing.

A partition count is fixed for life (more partitions would move keys), and a setting that somebody changed was
changed for a reason that this program does not know: both are reported, with what was wanted and found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

from tracklog.infra.log.port import Log, TopicInfo
from tracklog.schemas.errors import BarrierTooWeak, TopicMismatch, TopicMissing
from tracklog.schemas.topics import BARRIER_ORDER, Barrier, TopicSpec

Severity = Literal["required", "advised"]


class Finding(NamedTuple):
    """One difference. `required`: a guarantee does not hold with it. `advised`: it holds, but see to it. `fixed`: the
    provider of this Kafka lets nobody alter the setting, so another provider, or another `topics.*`, is the way out."""

    topic: str
    setting: str
    wanted: str
    found: str
    severity: Severity
    fixed: bool = False

    def __str__(self) -> str:
        return f"{self.topic}: {self.setting} is {self.found}, wanted {self.wanted} ({self.weight})"

    @property
    def weight(self) -> str:
        return f"{self.severity}, fixed by the provider" if self.fixed else self.severity


class Applied(NamedTuple):
    created: list[str]
    findings: list[Finding]


def apply(log: Log, specs: Iterable[TopicSpec]) -> Applied:
    """Creates the topics that are missing, then verifies all of them. Running it again changes nothing."""
    wanted = list(specs)
    created = log.create(wanted)
    return Applied(created, verify(log, wanted))


def verify(log: Log, specs: Iterable[TopicSpec]) -> list[Finding]:
    """What differs from the specs; empty when all is well. Changes nothing."""
    findings: list[Finding] = []
    for spec in specs:
        try:
            info = log.describe(spec.name)
        except TopicMissing:
            findings.append(Finding(spec.name, "topic", "present", "missing", "required"))
        else:
            findings += _compare(spec, info)
    return findings


def ensure_sound(findings: Iterable[Finding]) -> None:
    """TopicMismatch naming every finding that is required; advised ones pass."""
    required = [finding for finding in findings if finding.severity == "required"]
    if required:
        raise TopicMismatch(
            "; ".join(str(finding) for finding in required),
            hint="alter the settings with Kafka's own tools (`tracklog topics verify` lists them), set `topics.*`"
            " to what is meant, or choose another prefix",
        )


def ensure_writable(log: Log, specs: Iterable[TopicSpec]) -> None:
    """TopicMismatch when a guarantee would not hold for what is written to these topics.

    Another partition count than the wanted one is fine once all of them have it: it was chosen for life.
    """
    wanted = list(specs)
    findings = verify(log, wanted)
    counts = [finding.found for finding in findings if finding.setting == "partitions"]
    agreed = len(counts) == len(wanted) and len(set(counts)) == 1
    ensure_sound(finding for finding in findings if finding.setting != "partitions" or not agreed)


def require_barrier(log: Log, topic: str, wanted: Barrier) -> Barrier:
    """The level that the topic gives, read from the topic. BarrierTooWeak when `wanted` is more than that."""
    found = log.describe(topic).barrier
    check_barrier(topic, found, wanted)
    return found


def check_barrier(topic: str, found: Barrier, wanted: Barrier) -> None:
    """BarrierTooWeak when `wanted` is more than the level `found` on the topic."""
    if BARRIER_ORDER.index(found) < BARRIER_ORDER.index(wanted):
        raise BarrierTooWeak(
            f"{topic} gives the barrier {found!r}, asked for was {wanted!r}",
            hint="'replicated' needs min.insync.replicas of 2 or more, 'fsync' needs flush.messages=1",
        )


def _same(wanted: str, found: str) -> bool:
    return wanted == found


def _at_least(wanted: str, found: str) -> bool:
    return found.isdigit() and int(found) >= int(wanted)


_RULES: Final[dict[str, tuple[Callable[[str, str], bool], Severity]]] = {
    "cleanup.policy": (_same, "required"),
    "retention.ms": (_same, "required"),
    "retention.bytes": (_same, "required"),
    "message.timestamp.type": (_same, "required"),
    "unclean.leader.election.enable": (_same, "required"),
    "min.insync.replicas": (_at_least, "required"),
    "max.message.bytes": (_at_least, "required"),
    "flush.messages": (_same, "required"),
}
"""How a setting is compared. One that is in a spec and not here must be the same, and is advised."""


def _compare(spec: TopicSpec, info: TopicInfo) -> list[Finding]:
    findings = []
    if info.spec.partitions != spec.partitions:
        partitions = (str(spec.partitions), str(info.spec.partitions))
        findings.append(Finding(spec.name, "partitions", *partitions, "required"))
    if info.spec.replication_factor < spec.replication_factor:
        replicas = (str(spec.replication_factor), str(info.spec.replication_factor))
        findings.append(Finding(spec.name, "replication factor", *replicas, "required"))
    for setting, wanted in spec.config.items():
        holds, severity = _RULES.get(setting, (_same, "advised"))
        found = info.spec.config.get(setting, "not set")
        if not holds(wanted, found):
            findings.append(Finding(spec.name, setting, wanted, found, severity, setting in info.fixed))
    return findings + _fragile(info)


def _fragile(info: TopicInfo) -> list[Finding]:
    """With as many in-sync replicas demanded as there are, the loss of one stops every append."""
    factor = info.spec.replication_factor
    if factor > 1 and info.spec.config.get("min.insync.replicas") == str(factor):
        wanted = f"at most {factor - 1}"
        return [Finding(info.spec.name, "min.insync.replicas", wanted, str(factor), "advised")]
    return []
