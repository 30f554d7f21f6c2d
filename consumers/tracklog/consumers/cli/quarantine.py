"""`tracklog quarantine list`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.wiring import opened_log
from tracklog.infra.log.port import Record
from tracklog.infra.log.ranges import read_range
from tracklog.processors.quarantine import REASON, SOURCE_OFFSET, SOURCE_PARTITION, SOURCE_TOPIC

app = new_app(help="Look at records that are no events.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Look at records that are no events."""


@command(app, "list")
def list_command(
    run: Run, limit: Annotated[int, typer.Option("--max", min=1, help="At most so many, the newest.")] = 100
) -> None:
    """List what the projection has put into quarantine: where it came from, and why. Each position once.

    \b
    Example:
      tracklog quarantine list --max 20
    """
    topic = run.settings.topic_names.quarantine
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    with opened_log(run.settings, make_topics=True) as log:
        for partition in range(log.partition_count(topic)):
            bounds = log.bounds(topic, partition)
            for record in read_range(log, topic, partition, max(bounds.first, bounds.end - limit), bounds.end):
                row = _row(record)
                found[row["source_topic"], row["source_partition"], row["source_offset"]] = row
    rows = sorted(found.values(), key=lambda row: row["timestamp_ms"])[-limit:]
    if run.as_json:
        run.out.json({"records": rows})
    elif not rows:
        run.out.text("nothing is in quarantine")
    else:
        columns = ("from", "bytes", "reason")
        run.out.table(
            columns, [(_source(row), str(row["bytes"]), row["reason"]) for row in rows], right=("bytes",), wrap=True
        )


def _row(record: Record) -> dict[str, Any]:
    headers = {name: value.decode(errors="replace") for name, value in record.headers}
    return {
        "source_topic": headers.get(SOURCE_TOPIC, ""),
        "source_partition": headers.get(SOURCE_PARTITION, ""),
        "source_offset": headers.get(SOURCE_OFFSET, ""),
        "reason": headers.get(REASON, ""),
        "bytes": len(record.value or b""),
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
    }


def _source(row: dict[str, Any]) -> str:
    return f"{row['source_topic']} {row['source_partition']}:{row['source_offset']}"
