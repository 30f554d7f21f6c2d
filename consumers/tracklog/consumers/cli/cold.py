"""`tracklog cold compact|vacuum|verify|stats|schema`, and with them `trajectories|training`"""

from __future__ import annotations

from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tracklog.consumers.cli import cold_training
from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.verify import Summary
from tracklog.infra.clock import SystemClock
from tracklog.schemas.errors import InputError

if TYPE_CHECKING:
    from tracklog.consumers.cold.verify import ColdVerification
    from tracklog.infra.cold.table import ColdTable

app = new_app(
    help="Look after the cold tier: check it, merge its files, remove what nobody needs.", no_args_is_help=True
)
app.registered_commands += cold_training.app.registered_commands

SHOWN_MAX: Final = 200
MB: Final = 1_000_000
BreakLock = Annotated[bool, typer.Option("--break-lock", help="In an object store: take the lock of one that died.")]
TargetMb = Annotated[int, typer.Option("--target-mb", metavar="N", min=1, max=1024, help="Size to merge up to.")]
At = Annotated[str | None, typer.Option("--at", metavar="URL", help="Where the tables lie (else cold.url).")]


def _given(run: Run, at: str | None) -> Run:
    return run if at is None else run.with_flags({"cold.url": at})


def _load() -> None:
    """What reads the tables is an extra. Raises InputError."""
    try:
        import_module("tracklog.infra.cold.table")
    except ImportError as error:
        raise InputError(
            f"the cold tier needs deltalake and pyarrow: {error}", hint="pip install 'tracklog[export]'"
        ) from error


def _tables(run: Run) -> list[ColdTable]:
    """The events, and what is no event."""
    _load()
    from tracklog.infra.cold.table import EVENTS_TABLE, UNDECODABLE_TABLE, ColdTable

    cold = run.settings.cold
    return [
        ColdTable.open(cold.url, cold.store_options(), kind=kind, timeout_s=cold.timeout_s)
        for kind in (EVENTS_TABLE, UNDECODABLE_TABLE)
    ]


@command(app)
def compact(
    run: Run,
    at: At = None,
    target_mb: Annotated[
        int, typer.Option("--target-mb", metavar="N", min=1, max=1024, help="Size to merge up to.")
    ] = 192,
    break_lock: BreakLock = False,
) -> None:
    """Merge small files into large ones. Rows and offsets stay as they are; exporters may go on.

    One at a time: a second one is refused (exit code 3). The old files stay for those who read them, until
    `tracklog cold vacuum`.

    \b
    Examples:
      tracklog cold compact
      tracklog cold compact --at s3://bucket/tracklog
    """
    from tracklog.infra.cold.upkeep import compact as compact_table

    done: dict[str, Any] = {}
    for table in _tables(_given(run, at)):
        one = compact_table(table, SystemClock().now_us(), target_bytes=target_mb * MB, break_lock=break_lock)
        done[table.kind.folder] = one._asdict()
        run.out.text(
            f"{table.kind.folder}: {one.files_removed} files of {one.bytes_removed / MB:.1f} MB became"
            f" {one.files_added} of {one.bytes_added / MB:.1f} MB"
        )
    if run.as_json:
        run.out.json(done)


@command(app)
def vacuum(
    run: Run,
    at: At = None,
    grace_hours: Annotated[
        int, typer.Option("--grace-hours", metavar="N", help="Only files that nobody has needed for so long.")
    ] = 168,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without, they are only counted.")] = False,
    break_lock: BreakLock = False,
) -> None:
    """Remove files that the tables no longer name, and those of exporters that died while writing.

    Without --yes it only says what it would do. Files in the folder that are not Tracklog's are named and stay.

    \b
    Examples:
      tracklog cold vacuum
      tracklog cold vacuum --yes
    """
    from tracklog.infra.cold.upkeep import vacuum as vacuum_table

    done: dict[str, Any] = {"removed": yes}
    for table in _tables(_given(run, at)):
        now_us = SystemClock().now_us()
        one = vacuum_table(table, now_us, grace_hours=grace_hours, dry_run=not yes, break_lock=break_lock)
        done[table.kind.folder] = one._asdict()
        run.out.text(
            f"{table.kind.folder}: {one.removed} files of older versions and {one.orphans} that were never committed"
            f" {'removed' if yes else 'would be removed (--yes)'}"
        )
        for path in one.foreign[:SHOWN_MAX]:
            run.out.note(f"{table.uri}/{path} is not Tracklog's: left alone")
    if run.as_json:
        run.out.json(done)


@command(app)
def verify(
    run: Run,
    trajectory_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="One trajectory (else all).")] = None,
    at: At = None,
    no_blobs: Annotated[bool, typer.Option("--no-blobs", help="Look for no blob that events name.")] = False,
) -> None:
    """Check the cold tier: that no offset is missing or there twice, that every row is what was exported, the hash
    chain and the verdicts of every trajectory, and the blobs that events name.

    Reads the tables alone: no log is needed. Names the exact event that is wrong. Offsets that the log gave nobody
    (control records) are counted. Exit code 1 when there is a fault.

    \b
    Examples:
      tracklog cold verify
      tracklog cold verify airline-17-3 --at s3://bucket/tracklog
    """
    given = _given(run, at)
    _load()
    from tracklog.consumers.cold.verify import verification_of

    checked = verification_of(given.settings, only=trajectory_id, blobs=not no_blobs)
    topic, log = checked.log.table.identity.topic, checked.log
    total = sum(end - first for first, end in (log.bounds(topic, one) for one in checked.histories.partitions()))
    with run.out.progress("checking rows", total) as checked.histories.on_progress:
        summary = Summary(checked.histories)
        for report in checked.histories.reports():
            summary.add(report)
    if trajectory_id is not None and not summary.shown:
        raise InputError(f"no trajectory {trajectory_id!r} in {log.url}", hint="see: tracklog list")
    _tell(run, checked, summary)
    if not checked.sound:
        run.faulty()


def _tell(run: Run, checked: ColdVerification, summary: Summary) -> None:
    from tracklog.consumers.cli.verify import tell

    log, left = checked.log, checked.leftovers
    if run.as_json:
        run.out.json(
            {
                "sound": checked.sound,
                "rows": checked.rows,
                "files": checked.files,
                "blobs_named": log.blobs_named,
                "redacted": log.redacted,
                "faults": [fault._asdict() for fault in log.faults],
                "faults_total": log.faults_total,
                "partitions": [asdict(count) for _, count in sorted(log.counts.items())],
                "orphans": list(left.orphans),
                "foreign_files": list(left.foreign),
                "histories": summary.as_map(),
            }
        )
        return
    if log.faults:
        columns = ("what", "partition:offset", "trajectory", "event", "detail")
        rows = [
            (
                one.what,
                "-" if one.partition is None else f"{one.partition}:{one.offset}",
                one.trajectory_id or "-",
                "-" if one.seq is None else str(one.seq),
                one.detail,
            )
            for one in log.faults[:SHOWN_MAX]
        ]
        run.out.table(columns, rows, title="faults of the table", right=("event",), wrap=True)
    if log.redacted:
        names = sorted(log.redacted)
        shown = ", ".join(f"{name} ({log.redacted[name]})" for name in names[:SHOWN_MAX])
        more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
        run.out.note(
            f"{sum(log.redacted.values())} rows were exported without their payload, so neither they nor what follows"
            f" them in their trajectory can be verified by hash: {shown}{more}"
        )
    for path in left.foreign[:SHOWN_MAX]:
        run.out.note(f"{log.table.uri}/{path} is not Tracklog's")
    holes = sum(count.holes for count in log.counts.values())
    for count in log.counts.values():
        for first, end in count.gaps:
            run.out.note(
                f"partition {count.partition}: offsets {first} to {end - 1} were gone before they were exported"
            )
    run.out.text(
        f"{checked.rows} rows in {checked.files} files, {sum(c.undecodable for c in log.counts.values())} records that"
        f" are no events, {holes} offsets that the log gave nobody, {log.blobs_named} blobs named:"
        f" {log.faults_total or 'no'} faults of the table"
    )
    tell(run, summary)


@command(app)
def stats(run: Run, at: At = None) -> None:
    """Tell how large the tables are, how far they reach, and whether they want compaction.

    \b
    Examples:
      tracklog cold stats --json
    """
    found: dict[str, Any] = {}
    for table in _tables(_given(run, at)):
        files = table.files()
        size_bytes = sum(file.size_bytes for file in files)
        small = sum(file.size_bytes < 64 * MB for file in files)
        next_offsets = {
            str(p): table.next_offset(p) for p in range(table.identity.partitions) if table.next_offset(p) is not None
        }
        rows = sum(file.rows for file in files)
        values = {name: len({file.values[name] for file in files}) for name in table.kind.partitioned_by}
        found[table.kind.folder] = {
            "uri": table.uri,
            "version": table.version,
            "topic": table.identity.topic,
            "cluster_id": table.identity.cluster_id,
            "topic_id": table.identity.topic_id,
            "rows": rows,
            "files": len(files),
            "files_below_64_mb": small,
            "bytes": size_bytes,
            "distinct": values,
            "next_offsets": next_offsets,
        }
        run.out.text(
            f"{table.kind.folder}: {rows} rows in {len(files)} files of {size_bytes / MB:.1f} MB, {small} of them below"
            f" 64 MB; version {table.version}"
        )
    if run.as_json:
        run.out.json(found)


@command(app)
def schema(run: Run, at: At = None) -> None:
    """Show the columns of the tables, as they are there.

    \b
    Examples:
      tracklog cold schema
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for table in _tables(_given(run, at)):
        parted = table.kind.partitioned_by
        found[table.kind.folder] = [
            {"name": one.name, "type": str(one.type.type), "nullable": one.nullable, "partition": one.name in parted}
            for one in table.handle.schema().fields
        ]
    if run.as_json:
        run.out.json(found)
        return
    rows = [
        (
            folder,
            one["name"],
            one["type"],
            ("null" if one["nullable"] else "") + (" partition" if one["partition"] else ""),
        )
        for folder, columns in found.items()
        for one in columns
    ]
    run.out.table(("table", "column", "type", ""), rows)
