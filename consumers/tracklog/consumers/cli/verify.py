"""`tracklog verify`"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.read import Reader
from tracklog.consumers.stored_states import StoredStates
from tracklog.consumers.verify import Stored, Verification
from tracklog.consumers.wiring import check_topic, opened_log, opened_redis
from tracklog.infra.log.trimmed import COLD_HINT, check_beginning, kept_in_words
from tracklog.schemas.audit_report import Report
from tracklog.schemas.errors import InputError

REPORTS_SHOWN_MAX: Final = 200

app = new_app()


class Against(StrEnum):
    LOG = "log"
    REDIS = "redis"


@command(app)
def verify(
    run: Run,
    trajectory_id: Annotated[str | None, typer.Argument(metavar="ID", help="One trajectory.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All trajectories of the log.")] = False,
    against: Annotated[
        Against, typer.Option(help="redis: also compare with the heads and states stored there.")
    ] = Against.LOG,
) -> None:
    """Check the hash chain and the verdicts of trajectories, and name the exact event that is wrong.

    Reads the log, changes nothing. Retries, lost claims and former owners are harmless and only counted. A tail that
    was cut off leaves no trace in the log itself: --against redis finds it. Exit code 1 when there is a fault.

    \b
    Examples:
      tracklog verify --all
      tracklog verify airline-17-3 --against redis
    """
    if (trajectory_id is None) != everything:
        raise InputError("say what to verify", hint="a trajectory id, or --all")
    settings = run.settings
    topic = settings.topic_names.events
    with opened_log(settings) as log:
        check_topic(log, settings)
        with _stored(run, against) as stored:
            checked = Verification(log, topic, only=trajectory_id, stored=stored)
            kept = {one: log.bounds(topic, one) for one in checked.partitions()}
            total = sum(end - first for first, end in kept.values())
            with run.out.progress("checking records", total) as checked.on_progress:
                summary = Summary(checked, {one: first for one, (first, _) in kept.items() if first > 0})
                for report in checked.reports():
                    summary.add(report)
        if trajectory_id is not None and not summary.shown:
            check_beginning(log, topic, trajectory_id)
            raise InputError(f"no trajectory {trajectory_id!r} in {topic}", hint="see: tracklog list")
    tell(run, summary)
    if checked.faulty:
        run.faulty()


@contextmanager
def _stored(run: Run, against: Against) -> Iterator[Stored | None]:
    if against is Against.LOG:
        yield None
        return
    with opened_redis(run.settings) as client, asyncio.Runner() as runner:
        yield StoredStates(Reader(client, prefix=run.settings.prefix), runner)


class Summary:
    """What to say in the end: totals, and the reports that have something to say. `trimmed`: the first offset of each
    partition of which the beginning is kept nowhere that was looked at."""

    def __init__(self, checked: Verification, trimmed: Mapping[int, int] | None = None) -> None:
        self.checked = checked
        self.trimmed = trimmed or {}
        self.harmless: Counter[str] = Counter()
        self.events = 0
        self.shown: list[Report] = []
        self.not_shown = 0

    def add(self, report: Report) -> None:
        self.harmless.update(report.harmless)
        self.events += report.events
        if report.sound and not report.notes and self.checked.only is None:
            return
        if len(self.shown) < REPORTS_SHOWN_MAX:
            self.shown.append(report)
        else:
            self.not_shown += 1

    @property
    def whole(self) -> bool:
        """Whether all that was asked for was looked at: of one trajectory, from its first event on."""
        one = self.checked.only is not None and all(report.partial_from is None for report in self.shown)
        return one or not self.trimmed

    def as_map(self) -> dict[str, Any]:
        return {
            "trajectories": self.checked.trajectories,
            "faulty": self.checked.faulty,
            "records": self.checked.records,
            "events": self.events,
            "harmless": dict(self.harmless),
            "foreign": self.checked.foreign_total,
            "foreign_records": [
                {"partition": one.partition, "offset": one.offset, "reason": one.reason} for one in self.checked.foreign
            ],
            "kept_from": {str(partition): first for partition, first in self.trimmed.items()},
            "reports": [report_map(report) for report in self.shown],
            "reports_left_out": self.not_shown,
        }


def report_map(report: Report) -> dict[str, Any]:
    fields = report._asdict()
    return {**fields, "hash": report.hash.hex(), "faults": [fault._asdict() for fault in report.faults]}


def tell(run: Run, summary: Summary) -> None:
    if run.as_json:
        run.out.json(summary.as_map())
        return
    out, checked = run.out, summary.checked
    faults = [(report, fault) for report in summary.shown for fault in report.faults]
    if faults:
        columns = ("trajectory", "event", "fault", "partition:offset", "what")
        rows = [
            (report.trajectory_id, str(fault.seq), fault.kind.value, _place(fault), fault.detail)
            for report, fault in faults
        ]
        out.table(columns, rows, title="faults", right=("event",), wrap=True)
    for report in summary.shown:
        for note in report.notes:
            out.note(f"{report.trajectory_id}: {note}")
    for one in checked.foreign:
        out.note(f"no event at {one.partition}:{one.offset}: {one.reason}")
    if summary.trimmed:
        out.warning(f"what was trimmed was not looked at: {kept_in_words(summary.trimmed)}; {COLD_HINT}")
    harmless = ", ".join(f"{count} {verdict}" for verdict, count in sorted(summary.harmless.items()))
    sound = "all sound" if summary.whole else "no fault in what is kept, its beginning was not looked at"
    verdict = f"{checked.faulty} of them faulty" if checked.faulty else sound
    out.text(
        f"{checked.trajectories} trajectories, {summary.events} events in {checked.records} records: {verdict}"
        f"; harmless: {harmless or 'nothing'}; foreign: {checked.foreign_total}",
        style="red" if checked.faulty else "green" if summary.whole else "yellow",
    )


def _place(fault: Any) -> str:
    if fault.partition is None:
        return "-"
    return f"{fault.partition}:{fault.offset if fault.offset is not None else '-'}"
