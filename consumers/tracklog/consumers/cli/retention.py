"""`tracklog retention status|apply`"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.wiring import check_topic, cold_log_of, opened_log
from tracklog.infra.clock import SystemClock
from tracklog.schemas.errors import InputError

if TYPE_CHECKING:
    from tracklog.consumers.retention.trimming import Plan, Retention

app = new_app(help="Let go of what the log need not keep any more.", no_args_is_help=True)

KeepDays = Annotated[
    float | None, typer.Option("--keep-days", min=0, help="Keep what is younger (else retention.keep_days).")
]
DAY_S: Final = 86_400.0


@command(app)
def status(run: Run, keep_days: KeepDays = None) -> None:
    """Show what each partition keeps, what is exported, what could go, and what holds it. Changes nothing.

    Exit code 1 when the log has let go of events that were not exported.

    \b
    Example:
      tracklog retention status
    """
    with _opened(run, keep_days) as retention:
        _tell(run, retention.plan(), checked=None, applied=False)


@command(app)
def apply(
    run: Run,
    keep_days: KeepDays = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete it. Without, it is only said what would go.")] = False,
) -> None:
    """Trim the beginnings of events, inbox and attempt ledger, as far as nobody needs them. Only with --yes.

    Events go when their trajectories have ended, no fork that is not over rests on them, they are old enough, and every
    one of them was read from the log and from the cold tier and is the same. Records of the inbox go when they were
    taken, entries of the ledger when their calls have results. From then on every process needs cold.url.

    \b
    Examples:
      tracklog retention apply
      tracklog retention apply --keep-days 30 --yes
    """
    with _opened(run, keep_days) as retention:
        plan = retention.plan()
        checked = retention.check(plan)
        if yes:
            retention.apply(plan)
        _tell(run, plan, checked=checked, applied=yes)


def _tell_cuts(run: Run, plan: Plan) -> None:
    """Without the partitions that keep nothing: they would bury the others."""
    shown = [cut for cut in sorted(plan.cuts) if cut.kept]
    rows = [
        (cut.topic, str(cut.partition), str(cut.first), str(cut.before), str(cut.end), str(cut.records), cut.why)
        for cut in shown
    ]
    columns = ("topic", "partition", "kept from", "could be", "end", "records", "held by")
    if rows:
        run.out.table(columns, rows, right=columns[1:6])
    if len(shown) < len(plan.cuts):
        run.out.note(f"{len(plan.cuts) - len(shown)} partitions that keep nothing are left out (--json has them)")


@contextmanager
def _opened(run: Run, keep_days: float | None) -> Iterator[Retention]:
    try:
        from tracklog.consumers.retention.trimming import Retention, check_joined
    except ImportError as error:
        raise InputError(
            "retention reads the cold tier, which needs deltalake", hint="install it: pip install 'tracklog[export]'"
        ) from error
    settings = run.settings
    days = settings.retention.keep_days if keep_days is None else keep_days
    with opened_log(settings) as log:
        check_topic(log, settings)
        joined, cold = check_joined(log), cold_log_of(settings)
        assert cold is not None
        yield Retention(joined, cold, settings.topic_names, clock=SystemClock(), keep_s=days * DAY_S)


def _tell(run: Run, plan: Plan, *, checked: int | None, applied: bool) -> None:
    if plan.gaps:
        run.faulty()
    for gap in plan.gaps:
        run.out.warning(
            f"partition {gap.partition}: kept from offset {gap.first} on, exported up to {gap.exported}: the events"
            " between are lost"
        )
    if run.as_json:
        run.out.json(
            {
                "applied": applied,
                "records": plan.records,
                "compared": checked,
                "gaps": [gap._asdict() for gap in plan.gaps],
                "partitions": [{**cut._asdict(), "records": cut.records} for cut in plan.cuts],
                "exported": plan.exported,
            }
        )
        return
    _tell_cuts(run, plan)
    if checked is None:
        run.out.text(f"{plan.records} records could go")
    elif applied:
        run.out.text(f"{plan.records} records are gone; {checked} events of them are in the cold tier, each compared")
    else:
        run.out.text(f"{plan.records} records would go; {checked} events of them are in the cold tier, each compared")
        run.out.note("nothing was deleted; --yes deletes")
