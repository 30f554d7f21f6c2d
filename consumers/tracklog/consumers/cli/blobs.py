"""`tracklog blobs gc`"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.collecting import GRACE_S_MIN, Collection, collected, planned
from tracklog.consumers.wiring import blobs_of, check_topic, is_cold, opened_log
from tracklog.infra.blobs import StoredBlob
from tracklog.schemas.errors import InputError

app = new_app(help="Look after the blob store.", no_args_is_help=True)

DAY_S: Final = 86_400.0
MB: Final = 1_000_000


@app.callback()
def blobs() -> None:
    """Look after the blob store."""


@command(app)
def gc(
    run: Run,
    grace_days: Annotated[
        float, typer.Option("--grace-days", help="What is younger stays, and so long a blob lies aside; at least 1.")
    ] = 7.0,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without, it is only said what would be done.")] = False,
) -> None:
    """Lay aside blobs that no record names any more, and remove those that lie aside for long enough. Only with --yes.

    A blob stays while any record names it, in the log or in the cold tier, itself or through a checkpoint or a
    workspace. What is laid aside can still be read, and comes back with the next run if something names it. Reads all
    records. The blob store must be that of this installation alone: records of another one are not looked at.

    \b
    Examples:
      tracklog blobs gc
      tracklog blobs gc --grace-days 30 --yes
    """
    if grace_days * DAY_S < GRACE_S_MIN:
        raise InputError(f"--grace-days {grace_days:g} is too short", hint="at least 1: a writer may be slow")
    settings = run.settings
    if is_cold(settings):
        raise InputError(f"{settings.log.url} is not all of the log", hint="name the log itself, with cold.url set")
    store = blobs_of(settings)
    with opened_log(settings) as log:
        check_topic(log, settings)
        with run.out.progress("reading records", None) as advance:
            plan = planned(log, settings.topic_names, store, grace_s=grace_days * DAY_S, progress=advance)
    if yes:
        collected(store, plan)
    _tell(run, plan, done=yes)


def _tell(run: Run, plan: Collection, *, done: bool) -> None:
    if run.as_json:
        run.out.json({"done": done, **plan.as_map()})
        return
    would = "" if done else "would be "
    run.out.text(
        f"{plan.blobs} blobs of {plan.blobs_bytes / MB:.1f} MB, {plan.named} hashes named by records;"
        f" {plan.young} named by none are too young"
    )
    for what, found in (("laid aside", plan.lay_aside), ("taken back", plan.take_back), ("removed", plan.remove)):
        if found:
            run.out.text(f"{_amount(found)} {would}{what}")
    if plan.aside:
        run.out.text(f"{plan.aside} lie aside, and not for long enough")
    if not done and (plan.lay_aside or plan.take_back or plan.remove):
        run.out.note("nothing was changed; --yes does it")


def _amount(found: list[StoredBlob]) -> str:
    return f"{len(found)} blobs of {sum(one.size_bytes for one in found) / MB:.1f} MB"
