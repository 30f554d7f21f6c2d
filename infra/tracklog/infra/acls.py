"""Who needs which rights on the topics and groups of one installation: the least that each role works with (pure).

Only owners write events, only dispatchers write the ledger, and whoever may speak to a trajectory writes the inbox.
What the protocol promises does not rest on these rules (the log arbitrates), but on them rests who can take part in it.

    owner       workers, programs in library mode, importers, the ingest API: they write events
    dispatcher  runs tools: writes the ledger and, for outcomes, the inbox
    router      timers, expiries and messages: writes the inbox
    processor   folds views: writes what cannot be read into the quarantine
    exporter    reads events for the cold tier
    api         `tracklog serve`: reads all, writes the inbox; `owner` beside it where clients record through it
    operator    decides, settles, cancels, pauses tools: writes the inbox and the controls
    reader      reads all, writes nothing
    admin       makes the topics, and trims them
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tracklog.schemas.topics import Topics

__all__ = ["ROLES", "Rule", "rules_of"]

ROLES: Final = ("owner", "dispatcher", "router", "processor", "exporter", "api", "operator", "reader", "admin")

_KNOW: Final = ("Describe", "DescribeConfigs")
_READ: Final = ("Read", *_KNOW)
_WRITE: Final = ("Write", *_KNOW)
_BOTH: Final = ("Read", "Write", *_KNOW)
_MEMBER: Final = ("Read", "Describe")
_MADE: Final = ("Create", "Alter", "AlterConfigs", "Delete", *_READ)
"""Deleting records asks for Delete on the topic."""


class Rule(NamedTuple):
    """Operations, by Kafka's names, that are allowed on one resource. `prefixed`: on all whose name begins so."""

    resource: str
    name: str
    prefixed: bool
    operations: tuple[str, ...]


def rules_of(role: str, topics: Topics) -> tuple[Rule, ...]:
    """The rules of a role. All topics may be described by everybody: each role checks them before it begins.

    An idempotent producer needs nothing but Write on its topic (Kafka 3.0 and newer).
    """
    events, inbox, attempts, quarantine, controls = topics.all
    everything = f"{topics.prefix}."
    own: dict[str, tuple[Rule, ...]] = {
        "owner": (_topic(events, _BOTH), _topic(inbox, _BOTH), _groups(everything)),
        "dispatcher": (
            _topic(events, _READ),
            _topic(attempts, _BOTH),
            _topic(inbox, _WRITE),
            _topic(controls, _READ),
            _groups(everything),
        ),
        "router": (_topic(events, _READ), _topic(inbox, _WRITE), _groups(everything)),
        "processor": (_topic(events, _READ), _topic(quarantine, _BOTH), _groups(everything)),
        "exporter": (_topic(events, _READ), _groups(everything)),
        "api": (_prefixed(everything, _READ), _topic(inbox, _WRITE)),
        "operator": (_prefixed(everything, _READ), _topic(inbox, _WRITE), _topic(controls, _WRITE)),
        "reader": (_prefixed(everything, _READ),),
        "admin": (_prefixed(everything, _MADE),),
    }
    return _joined((*own[role], _prefixed(everything, _KNOW)))


def _topic(name: str, operations: tuple[str, ...]) -> Rule:
    return Rule("topic", name, False, operations)


def _prefixed(name: str, operations: tuple[str, ...]) -> Rule:
    return Rule("topic", name, True, operations)


def _groups(name: str) -> Rule:
    return Rule("group", name, True, _MEMBER)


def _joined(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """One rule a resource, its operations in Kafka's spelling and without repeats."""
    found: dict[tuple[str, str, bool], dict[str, None]] = {}
    for rule in rules:
        found.setdefault(rule[:3], {}).update(dict.fromkeys(rule.operations))
    return tuple(Rule(*place, tuple(operations)) for place, operations in found.items())
