"""`tracklog doctor`"""

from __future__ import annotations

from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.doctor import examine
from tracklog.consumers.doctor_check import Check
from tracklog.infra.acls import ROLES
from tracklog.infra.clock import SystemClock, SystemEntropy
from tracklog.schemas.errors import InputError

app = new_app()


@command(app)
def doctor(
    run: Run,
    role: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE", help=f"What this user is to Kafka: {', '.join(ROLES)}; again for more."),
    ] = None,
) -> None:
    """Check that everything needed is there and sound, and say how to put right what is not.

    Looks at versions, the folders of data and secrets, the log, topic settings, the rights of a role on Kafka, clocks
    (by the newest event, and that of Redis), Redis with its eviction policy, the schema registry, the blob store and
    the cold tier's bucket. Into these two it puts one small file. Writes no event. Exit code 1 when something is wrong.
    With --json also prints all settings, secrets masked.

    \b
    Examples:
      tracklog --log kafka://localhost:9092 doctor
      tracklog --log kafka://localhost:9092 doctor --role dispatcher
    """
    unknown = [one for one in role or () if one not in ROLES]
    if unknown:
        raise InputError(f"unknown role {unknown[0]!r}", hint=f"one of {', '.join(ROLES)}")
    checks = []
    for check in examine(run.settings, SystemClock(), SystemEntropy(), roles=role or (), secrets=run.secrets):
        checks.append(check)
        if check.ok is False:
            run.faulty()
        _tell(run, check)
    if run.as_json:
        found = [check._asdict() for check in checks]
        run.out.json({"ok": run.exit_code == 0, "checks": found, "settings": run.settings.public()})


def _tell(run: Run, check: Check) -> None:
    mark, style = {True: ("ok", "green"), False: ("WRONG", "bold red"), None: ("-", "dim")}[check.ok]
    run.out.text(f"{mark:<6} {check.name:<11} {check.found}", style=style)
    if check.fix and not check.ok:
        run.out.text(f"       {'':<11} fix: {check.fix}")
