"""Whether this user may do on Kafka what a role does: the table of `tracklog acls` against the broker's own word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tracklog.consumers.doctor_check import Check
from tracklog.infra.acls import Rule, rules_of
from tracklog.infra.clock import Clock
from tracklog.infra.log.port import Log
from tracklog.infra.settings import Settings
from tracklog.infra.wiring import kafka_options
from tracklog.schemas.errors import LogError
from tracklog.schemas.topics import Topics

__all__ = ["rights"]

NAME: Final = "acls"
KAFKA: Final = "kafka://"
JOIN_S: Final = 15.0
"""How long joining a group may take: a broker lets new groups of the classic protocol wait for three seconds."""
POLL_S: Final = 0.2


def rights(log: Log, settings: Settings, roles: Sequence[str], clock: Clock) -> Check:
    """Asks for the rights on topics, and joins a group of its own where a role is a member of one. Writes nothing.

    Raises LogError.
    """
    if not settings.log.url.startswith(KAFKA):
        return Check(NAME, None, "an embedded log asks nobody who they are")
    if not roles:
        return Check(NAME, None, "not looked at: say which role this is, with --role")
    from tracklog.infra.log.kafka_rights import allowed_on

    topics = settings.topic_names
    rules = [rule for role in roles for rule in rules_of(role, topics)]
    allowed = allowed_on(settings.log.url, kafka_options(settings), topics.all)
    missing = lacking(rules, topics, allowed)
    refused = _refused_group(log, topics, clock) if any(rule.resource == "group" for rule in rules) else None
    wrong = [f"{topic}: no {', '.join(lacks)}" for topic, lacks in missing.items()]
    wrong += [refused] if refused is not None else []
    absent = [topic for topic, operations in allowed.items() if operations is None]
    named = " and ".join(roles)
    if wrong:
        fix = f"grant what this prints: tracklog acls {' '.join(f'--role {role}' for role in roles)}"
        return Check(NAME, False, f"not all that {named} needs: {'; '.join(wrong)}", fix)
    if absent:
        return Check(NAME, None, f"rights on {', '.join(absent)} cannot be looked at: there are no such topics")
    return Check(NAME, True, f"this user has all rights of {named}")


def lacking(
    rules: Iterable[Rule], topics: Topics, allowed: Mapping[str, frozenset[str] | None]
) -> dict[str, list[str]]:
    """What is needed and not allowed, by topic; nothing of topics that are not there."""
    missing: dict[str, list[str]] = {}
    for rule in rules:
        if rule.resource != "topic":
            continue
        for topic in topics.all if rule.prefixed else (rule.name,):
            operations = allowed[topic]
            lacks = [one for one in rule.operations if operations is not None and one not in operations]
            known = missing.get(topic, [])
            if lacks:
                missing[topic] = [*known, *(one for one in lacks if one not in known)]
    return missing


def _refused_group(log: Log, topics: Topics, clock: Clock) -> str | None:
    """What hinders a member of a group; None when it was given partitions. The group is its own, and keeps nothing."""
    listener = _Joined(log, topics.events)
    group = topics.group("doctor")
    try:
        member = log.group(group, topics.events, listener)
    except LogError as error:
        return error.message
    until_s = clock.monotonic_s() + JOIN_S
    try:
        while not listener.joined and clock.monotonic_s() < until_s:
            member.poll(1, POLL_S)
        return None if listener.joined else f"group {group} gave no partitions within {JOIN_S:g} s"
    except LogError as error:
        return error.message
    finally:
        member.close()


class _Joined:
    """Begins at the end, so that nothing is read."""

    def __init__(self, log: Log, topic: str) -> None:
        self._log = log
        self._topic = topic
        self.joined = False

    def assigned(self, partitions: Sequence[int]) -> Mapping[int, int]:
        self.joined = True
        return self._log.ends(self._topic, partitions)

    def revoked(self, partitions: Sequence[int]) -> None: ...

    def lost(self, partitions: Sequence[int]) -> None: ...
