"""`tracklog demo`"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tracklog.consumers.cli import import_runs, list_runs, show
from tracklog.consumers.cli import verify as verify_command
from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.replay_output import PrettySink
from tracklog.consumers.cli.run import Run
from tracklog.consumers.demo import (
    CHOSEN,
    Flip,
    choose,
    copy_with_flip,
    demo_home,
    embedded_flags,
    stack_flags,
)
from tracklog.consumers.importing import import_into
from tracklog.consumers.listing import listed
from tracklog.consumers.read import Reader
from tracklog.consumers.read_filter import Filter as Wanted
from tracklog.consumers.replay import Filter, replay, resolve
from tracklog.consumers.timeline import Timeline, timeline
from tracklog.consumers.verify import Verification
from tracklog.consumers.wiring import opened_log, opened_redis, projection_of
from tracklog.infra import topic_admin
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.infra.log.port import Log
from tracklog.infra.redis_client import RedisClient
from tracklog.infra.stack.local import LocalStack
from tracklog.producers.data import SHIPPED_RUNS, shipped_runs
from tracklog.producers.importers.report import ImportReport
from tracklog.schemas.errors import StackError, TamperedRecord

TOOL: Final = "update_reservation_flights"
LISTED: Final = 8
TIMELINE_ENTRIES: Final = 26
REPLAYED: Final = (-3, 5)
"""Offsets around the event that was flipped."""

app = new_app()


@command(app)
def demo(
    run: Run,
    kafka: Annotated[bool, typer.Option("--kafka", help="On Apache Kafka and Redis, which it starts.")] = False,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Keep the data here (else they are gone afterwards).")
    ] = None,
) -> None:
    """See it work: import 125 recorded runs, fold, list and show them, find a flipped byte, replay a range.

    Needs no service and half a minute. With --kafka it uses the local stack (`tracklog stack up`), in topics of its
    own.

    \b
    Examples:
      tracklog demo
      tracklog demo --dir demo-data && tracklog --set home=demo-data list
      tracklog demo --kafka
    """
    with demo_home(directory) as home:
        if kafka:
            status = LocalStack(Path(run.settings.home)).up(kafka=True, redis=True, progress=run.out.note)
            if status.log is None or status.redis is None:
                raise StackError("the local stack did not start whole", hint="see: tracklog stack status")
            here = run.with_flags(stack_flags(status.log, status.redis, Path(run.settings.home)))
        else:
            here = run.with_flags(embedded_flags(home))
        told = tour(here)
        _next_steps(here, kafka=kafka, directory=directory)
    if run.as_json:
        run.out.json(told)


def tour(run: Run) -> dict[str, Any]:
    """All steps, on the log and the Redis of the settings. Raises TamperedRecord when the flipped byte is missed."""
    with opened_log(run.settings) as log, opened_redis(run.settings) as client:
        return _Demo(run, log, client).all()


class _Demo:
    """Each step says what it does, does it with the functions of the commands, and shows what came of it."""

    def __init__(self, run: Run, log: Log, client: RedisClient) -> None:
        self.run, self.log, self.client = run, log, client
        self.topic = run.settings.topic_names.events
        self.step = 0

    def all(self) -> dict[str, Any]:
        topic_admin.ensure_sound(topic_admin.apply(self.log, self.run.settings.topic_specs()).findings)
        report = self.import_shipped()
        self.fold()
        self.list()
        found = self.show()
        checked = self.verify("every hash, every verdict", self.topic)
        flip = self.flip(choose(found))
        flipped = self.verify("the copy, of which nobody has said what was changed", flip.topic)
        fault = flipped.shown[0].faults[0] if flipped.shown else None
        if fault is None or (flipped.shown[0].trajectory_id, fault.seq) != (flip.trajectory_id, flip.seq):
            raise TamperedRecord(f"the flipped byte of event {flip.seq} was not found: {fault}")
        self.run.out.text(f"found: event {fault.seq} of {flip.trajectory_id}, and nothing else", style="bold green")
        self.replay(flip)
        return {
            "imported": import_runs.report_map(report),
            "verified": checked.as_map(),
            "flipped": flip._asdict(),
            "found": fault._asdict(),
        }

    def say(self, what: str, same_as: str) -> None:
        self.step += 1
        self.run.out.text()
        self.run.out.text(f"{self.step}. {what}", style="bold")
        if same_as:
            self.run.out.text(f"   $ tracklog {same_as}", style="dim")

    def import_shipped(self) -> ImportReport:
        self.say(f"Import {SHIPPED_RUNS} recorded agent runs into {self.log.url}", "import runs/")
        clock, done = SystemClock(), 0
        started = clock.monotonic_s()
        with self.run.out.progress("importing runs", SHIPPED_RUNS) as advance:

            def watch(report: ImportReport) -> None:
                nonlocal done
                advance(report.runs - done)
                done = report.runs

            report = import_into(self.log, self.run.settings, shipped_runs(), on_progress=watch)
        if not self.run.as_json:
            import_runs.tell(self.run, report, clock.monotonic_s() - started)
        return report

    def fold(self) -> None:
        self.say("Fold the log into Redis", "process --once")
        positions = projection_of(self.run.settings, self.log, self.client).loop.drain()
        self.run.out.text(f"{len(positions)} partitions folded, {sum(positions.values())} records")

    def list(self) -> None:
        self.say(
            "List runs that changed a booking and failed their task",
            f"list --tool {TOOL} --label reward=0 --limit {LISTED}",
        )
        reader = Reader(self.client, prefix=self.run.settings.prefix)
        wanted = Wanted(labels={"reward": "0"}, tool=TOOL)
        page = asyncio.run(listed(reader, wanted, None, cursor=None, limit=LISTED))
        if not self.run.as_json:
            list_runs.tell(self.run, page)

    def show(self) -> Timeline:
        self.say("Show one run, turn by turn", f"show {CHOSEN}")
        reader = Reader(self.client, prefix=self.run.settings.prefix, log=self.log)
        found = timeline(CHOSEN, asyncio.run(reader.records(CHOSEN)).value)
        if not self.run.as_json:
            show.tell(self.run, found, entries_max=TIMELINE_ENTRIES)
        return found

    def verify(self, what: str, topic: str) -> verify_command.Summary:
        self.say(f"Verify {what}", "verify --all")
        summary = verify_command.Summary(Verification(self.log, topic))
        for report in summary.checked.reports():
            summary.add(report)
        if not self.run.as_json:
            verify_command.tell(self.run, summary)
        return summary

    def flip(self, seq: int) -> Flip:
        self.say("Copy the log and flip one bit of one byte on the way", "")
        tag = SystemEntropy().nonce().hex()[:8]
        flip = copy_with_flip(self.log, self.run.settings, CHOSEN, seq, tag=tag)
        self.run.out.text(f"flipped in {flip.topic}: event {flip.seq} ({flip.name}) of {flip.trajectory_id}")
        return flip

    def replay(self, flip: Flip) -> None:
        first, last = max(0, flip.offset + REPLAYED[0]), flip.offset + REPLAYED[1]
        bounds = f"--partition {flip.partition} --from {first} --to {last}"
        self.say("Replay the offsets around it, from the log that nobody touched", f"replay events {bounds}")
        ranges = resolve(self.log, self.topic, partition=flip.partition, frm=str(first), to=str(last))
        sink = PrettySink(self.run)
        for one in replay(self.log, self.topic, ranges, Filter()):
            sink.put(one)


def _next_steps(run: Run, *, kafka: bool, directory: Path | None) -> None:
    run.out.text()
    run.out.text("What to try next", style="bold")
    if kafka:
        run.out.text('  eval "$(tracklog stack status --exports)"     point the commands at this Kafka and Redis')
        run.out.text(f"  tracklog --prefix {run.settings.prefix} list      look around")
        run.out.text("  tracklog stack down                           stop Kafka and Redis; the data stay")
    elif directory is not None:
        run.out.text(f"  tracklog --set home={directory} list       look around in what was imported")
        run.out.text(f"  tracklog --set home={directory} show {CHOSEN}")
    else:
        run.out.text("  tracklog demo --dir demo-data                 the same, and keep the data")
        run.out.text("  tracklog demo --kafka                         the same on Apache Kafka and Redis")
    run.out.text("  tracklog import PATH...                       your own recorded runs")
    run.out.text("  tracklog --help                               everything else")
