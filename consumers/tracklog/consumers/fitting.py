"""Whether this version of Tracklog can go on with what another one has left: records on the topics, schemas in the
registry, projections in Redis. Asked by the version that is to come, before an upgrade and before going back
(docs/runbooks/upgrade.md). Reads only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tracklog.infra.log.port import Log, Record
from tracklog.infra.log.ranges import read_range
from tracklog.infra.redis_client import RedisClient, store_errors
from tracklog.infra.registry import SchemaRegistry, subject_of
from tracklog.processors import agenda, trajectories
from tracklog.processors.loading import BUILTIN, OPTIONAL, installed
from tracklog.processors.redis_store import live_keys
from tracklog.processors.store_keys import pointer_key
from tracklog.schemas import catalog, compat
from tracklog.schemas.catalog import HEADER_TYPE, Kind
from tracklog.schemas.codec import split_frame
from tracklog.schemas.errors import ForeignRecord, TopicMissing
from tracklog.schemas.topics import Topics

__all__ = ["Fit", "Misfit", "fit_of_projections", "fit_of_records", "fit_of_registry"]


class Misfit(NamedTuple):
    """`where`: a topic, a subject or a projection. `required`: this version must not be started on it; `advised`: it
    may, and somebody should know."""

    where: str
    problem: str
    hint: str
    severity: Literal["required", "advised"]


class Fit(NamedTuple):
    """`looked`: how many records, subjects or projections were looked at."""

    looked: int
    misfits: list[Misfit]


@dataclass(slots=True)
class _Unknown:
    count: int = 0
    last: str = ""


def fit_of_records(log: Log, topics: Topics, per_partition: int) -> Fit:
    """The newest records of each partition of each topic that has schemas: whether all are of versions known here.

    A topic that is not there holds nothing. Raises LogError.
    """
    looked, misfits = 0, list[Misfit]()
    for kind, topic in _topics(topics).items():
        found: dict[tuple[str, bytes], _Unknown] = {}
        for record in _newest(log, topic, per_partition):
            looked += 1
            unknown = _unknown(record)
            if unknown is not None:
                one = found.setdefault(unknown, _Unknown())
                one.count, one.last = one.count + 1, f"{record.partition}:{record.offset}"
        misfits += [_of_records(kind, topic, *key, one) for key, one in sorted(found.items())]
    return Fit(looked, misfits)


def _topics(topics: Topics) -> dict[Kind, str]:
    events, inbox, attempts, _, controls = topics.all
    return {Kind.EVENTS: events, Kind.INBOX: inbox, Kind.LEDGER: attempts, Kind.CONTROLS: controls}


def _newest(log: Log, topic: str, per_partition: int) -> Iterator[Record]:
    try:
        partitions = log.partition_count(topic)
    except TopicMissing:
        return
    for partition in range(partitions):
        bounds = log.bounds(topic, partition)
        start = max(bounds.first, bounds.end - per_partition)
        yield from read_range(log, topic, partition, start, bounds.end, bounds=bounds)


def _unknown(record: Record) -> tuple[str, bytes] | None:
    """Type and fingerprint of a record of ours whose schema is not known here."""
    headers = dict(record.headers)
    try:
        fingerprint, _ = split_frame(record.value or b"", headers)
    except ForeignRecord:
        return None
    stated = headers.get(HEADER_TYPE)
    known = catalog.find(fingerprint, stated) is not None
    return None if known else ((stated or b"unknown").decode(errors="replace"), fingerprint)


_KEPT: dict[Kind, str] = {
    Kind.EVENTS: "a run that has one stops here until a version that knows it goes on with it",
    Kind.INBOX: "what they say to runs is not taken here",
    Kind.LEDGER: "who has taken which call, and what became of it, is not read here",
    Kind.CONTROLS: "a pause or a release of a tool is not seen here",
}


def _of_records(kind: Kind, topic: str, name: str, fingerprint: bytes, found: _Unknown) -> Misfit:
    return Misfit(
        topic,
        f"{found.count} of the newest records are {name} of a version not known here (fingerprint {fingerprint.hex()},"
        f" the last one at {found.last}): {_KEPT[kind]}",
        "stay with the version that wrote them, or install one that is at least as new",
        "required",
    )


def fit_of_registry(registry: SchemaRegistry, topics: Topics) -> Fit:
    """Whether every schema version that the registry holds of our types and the newest one here read each other.

    One that is not known here is told; the records say whether it is in use. Raises RegistryError.
    """
    looked, misfits = 0, list[Misfit]()
    for name, kind in catalog.KIND_OF.items():
        subject = subject_of(_topics(topics)[kind], catalog.full_name(name))
        newest = json.loads(catalog.newest(name).text)
        for text in registry.schemas_under(subject):
            looked += 1
            misfits += _of_schema(subject, json.loads(text), newest)
    return Fit(looked, misfits)


def _of_schema(subject: str, registered: compat.Avro, newest: compat.Avro) -> Iterator[Misfit]:
    if catalog.fingerprint(registered) in catalog.by_fingerprint():
        return
    problems = compat.check(registered, newest)
    if problems:
        yield Misfit(
            subject,
            f"the registry holds a version that does not go with the one here: {problems[0]}",
            "another program owns this subject, or a released schema was changed: use another prefix",
            "required",
        )
    else:
        yield Misfit(
            subject,
            "the registry holds a version that is not known here, and is compatible",
            "register schemas first, then install the version that has them; going back is safe while nobody writes it",
            "advised",
        )


def fit_of_projections(client: RedisClient, prefix: str) -> Fit:
    """Whether readers of each projection that comes with this version, or is installed, are pointed to one that it can
    read: not to a newer version. Projections that it does not have are for others. Raises StoreUnavailable."""
    own = _own_versions()
    start = pointer_key(prefix, "")
    with store_errors(client):
        names = sorted(key.decode().removeprefix(start) for key in client.scan_iter(match=f"{start}*"))
    known = [(name, live_keys(client, prefix, name)) for name in names if name in own]
    there = [(name, live.keys.version) for name, live in known if live is not None]
    return Fit(len(there), [_of_projection(name, found, own[name]) for name, found in there if found > own[name]])


def _own_versions() -> dict[str, int]:
    found = {trajectories.NAME: trajectories.VERSION, agenda.NAME: agenda.VERSION}
    for one in (*BUILTIN, *OPTIONAL, *(type(loaded) for loaded in installed())):
        found[one.name] = max(one.version, found.get(one.name, 0))
    return found


def _of_projection(name: str, found: int, own: int) -> Misfit:
    return Misfit(
        name,
        f"readers follow version {found} in Redis, and the one here is version {own}: it would be misread",
        f"stay with the newer version; or fold this one beside it (`tracklog process {name}`) and, once it has caught"
        f" up, `tracklog projections switch {name} --version {own}`",
        "required",
    )
