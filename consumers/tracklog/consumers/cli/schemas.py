"""`tracklog schemas check`"""

from __future__ import annotations

from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.fitting import Fit, fit_of_projections, fit_of_records, fit_of_registry
from tracklog.consumers.wiring import opened_log, opened_redis
from tracklog.infra.wiring import registry_of

app = new_app(help="Check that this version reads what is there.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Check that this version reads what is there."""


@command(app)
def check(
    run: Run,
    records: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many of the newest records of each partition are looked at.")
    ] = 1000,
) -> None:
    """Check that this version can go on with what another one has left, before an upgrade or before going back.

    Looks at the schemas of the newest records, at those in the registry if there is one, and at the versions of the
    projections in Redis. Changes nothing. Exit code 1 when this version must not be started; each reason is named with
    the way out.

    \b
    Examples:
      tracklog schemas check
      tracklog schemas check --records 100000 --json
    """
    with opened_log(run.settings) as log:
        found = {"records": fit_of_records(log, run.settings.topic_names, records)}
    if run.settings.registry.url:
        found["schemas in the registry"] = fit_of_registry(registry_of(run.settings), run.settings.topic_names)
    with opened_redis(run.settings) as client:
        found["projections"] = fit_of_projections(client, run.settings.topic_names.prefix)
    _tell(run, found)


def _tell(run: Run, found: dict[str, Fit]) -> None:
    misfits = [one for fit in found.values() for one in fit.misfits]
    if any(one.severity == "required" for one in misfits):
        run.faulty()
    if run.as_json:
        looked = {what: fit.looked for what, fit in found.items()}
        run.out.json({"looked": looked, "misfits": [one._asdict() for one in misfits]})
        return
    for one in misfits:
        verdict = "refused" if one.severity == "required" else "note"
        run.out.text(f"{verdict}: {one.where}: {one.problem}\n  {one.hint}")
    looked_at = ", ".join(f"{fit.looked} {what}" for what, fit in found.items())
    run.out.text(f"looked at {looked_at}" + ("" if misfits else ": this version reads all of it"))
