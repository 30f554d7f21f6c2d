"""The events of a log in a cold table, without an exporter's process."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from tracklog.consumers.export.models import Models
from tracklog.consumers.export.rows import batch_of
from tracklog.infra.cold.staging import staged
from tracklog.infra.cold.table import UNDECODABLE_TABLE, ColdTable, Identity, app_id
from tracklog.infra.log.port import Log
from tracklog.infra.log.ranges import read_range

_NAMES = itertools.count()


def export_to(log: Log, topic: str, url: str, *, batch: int = 500, partitions: Iterable[int] | None = None) -> None:
    """Brings what is not in the table yet."""
    info = log.describe(topic)
    identity = Identity(info.cluster_id, info.topic_id, topic, info.spec.partitions)
    table = ColdTable.create_if_missing(url, {}, identity)
    aside = ColdTable.create_if_missing(url, {}, identity, kind=UNDECODABLE_TABLE)
    for partition in range(info.spec.partitions) if partitions is None else partitions:
        bounds, models = log.bounds(topic, partition), Models(lambda _: {})
        begin = table.next_offset(partition)
        if begin is None:
            begin = bounds.first
            table.commit([], {app_id(*identity[:2], partition, "first"): begin})
        records = read_range(log, topic, partition, begin, bounds.end)
        while some := list(itertools.islice(records, batch)):
            made = batch_of(some, begin, identity, models)
            begin = some[-1].offset + 1
            if made.foreign.num_rows:
                aside.commit(list(staged(aside, made.foreign, _name, 0)), {})
            added = list(staged(table, made.rows, _name, 0)) if made.rows.num_rows else []
            table.commit(added, {app_id(*identity[:2], partition): begin})
        table.commit([], {app_id(*identity[:2], partition): bounds.end})


def _name() -> str:
    return f"test-{next(_NAMES)}"
