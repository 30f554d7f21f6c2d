"""The curated table: one row for each finished trajectory, made of the events and made anew whenever they say more.

A commit replaces rows by their trajectory and carries, as application transactions, up to where the events of each
partition were looked at; so doing it again costs what is new, and two who do it at once end in the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, Transaction

from tracklog.infra.cold.faults import speaking_of
from tracklog.infra.cold.table import ColdTable, Kind, app_id

__all__ = ["TRAJECTORIES", "TRAJECTORIES_TABLE", "looked_at_to", "replace_rows"]

_TEXTS: Final = (
    *("trajectory_id", "tenant", "kind", "agent", "driver", "task", "task_id", "source", "outcome", "reason", "swarm"),
    *("labels", "models", "annotations", "faults", "cluster_id", "topic_id", "head"),
)
_NUMBERS: Final = (
    *("turns", "model_calls", "tool_calls", "input_tokens", "output_tokens", "started_ms", "ended_ms", "partition"),
    *("first_offset", "last_offset", "events"),
)
TRAJECTORIES: Final = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in _TEXTS),
        *(pa.field(name, pa.string()) for name in ("origin", "parent")),
        *(pa.field(name, pa.int64(), nullable=False) for name in _NUMBERS),
        pa.field("cost_usd", pa.float64(), nullable=False),
        pa.field("reward", pa.float64()),
        *(pa.field(name, pa.bool_(), nullable=False) for name in ("compacted", "verified")),
    ]
)
"""`labels`, `models`, `annotations`, `faults`, `origin` and `parent` are JSON."""
TRAJECTORIES_TABLE: Final = Kind("trajectories", TRAJECTORIES, ())

LOOKED_AT: Final = "looked-at"


def looked_at_to(table: ColdTable, partition: int) -> int | None:
    """The offset up to which the events of a partition are in; None when nothing of it is."""
    with speaking_of(f"cannot read {table.uri}"):
        return table.handle.transaction_version(app_id(*table.identity[:2], partition, LOOKED_AT))


def replace_rows(table: ColdTable, rows: pa.Table, looked_at: Mapping[int, int]) -> None:
    """Puts rows in the place of those of the same trajectories, durably.

    Raises ColdConflict when somebody else did meanwhile: nothing was written.
    """
    before = {file.path for file in table.files()}
    version = table.version
    moved = [Transaction(app_id(*table.identity[:2], p, LOOKED_AT), end) for p, end in looked_at.items()]
    with speaking_of(f"cannot commit to {table.uri}"):
        merge = table.handle.merge(
            rows,
            "t.trajectory_id = s.trajectory_id",
            source_alias="s",
            target_alias="t",
            commit_properties=CommitProperties(app_transactions=moved),
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
    table.reopen()
    table.place.sync_files({file.path for file in table.files()} - before)
    table.place.sync_log(range(version + 1, table.version + 1))
