"""`tracklog doctor`"""

from __future__ import annotations

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.doctor import Check, examine
from tracklog.infra.clock import SystemClock

app = new_app()


@command(app)
def doctor(run: Run) -> None:
    """Check that everything needed is there and sound, and say how to put right what is not.

    Looks at versions, the log, topic settings, clocks, Redis with its eviction policy, and the blob store (into which
    it puts one small blob). Writes no event. Exit code 1 when something is wrong.
    With --json also prints all settings, secrets masked.

    \b
    Example:
      tracklog --log kafka://localhost:9092 doctor
    """
    checks = []
    for check in examine(run.settings, SystemClock()):
        checks.append(check)
        if check.ok is False:
            run.faulty()
        _tell(run, check)
    if run.as_json:
        found = [check._asdict() for check in checks]
        run.out.json({"ok": run.exit_code == 0, "checks": found, "settings": run.settings.public()})


def _tell(run: Run, check: Check) -> None:
    mark, style = {True: ("ok", "green"), False: ("WRONG", "bold red"), None: ("-", "dim")}[check.ok]
    run.out.text(f"{mark:<6} {check.name:<9} {check.found}", style=style)
    if check.fix and check.ok is False:
        run.out.text(f"       {'':<9} fix: {check.fix}")
