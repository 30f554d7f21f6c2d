"""`tracklog stack up|down|status`"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.infra.stack.local import LocalStack, StackStatus

app = new_app(help="Start and stop a local Kafka and Redis, without Docker.", no_args_is_help=True)


@command(app)
def up(
    run: Run,
    with_kafka: Annotated[
        bool, typer.Option(" /--no-kafka", help="Do not start Kafka (it needs Java and Maven).")
    ] = True,
    with_redis: Annotated[bool, typer.Option(" /--no-redis", help="Do not start Redis.")] = True,
) -> None:
    """Start Kafka and Redis as daemons of this folder; what runs already is left alone.

    The first time fetches Kafka's jars by Maven, about 55 MB.

    \b
    Example:
      tracklog stack up && tracklog stack status
    """
    status = _stack(run).up(kafka=with_kafka, redis=with_redis, progress=run.out.note)
    _tell(run, status)


@command(app)
def down(run: Run) -> None:
    """Stop what runs. The data stay.

    \b
    Example:
      tracklog stack down
    """
    stopped = _stack(run).down()
    if run.as_json:
        run.out.json({"stopped": stopped})
    else:
        run.out.text(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")


@command(app)
def status(
    run: Run,
    exports: Annotated[bool, typer.Option("--exports", help="Print only the exports, for a shell's eval.")] = False,
) -> None:
    """Show what runs, and what to export to use it. Exit code 1 when nothing runs or something does not answer.

    \b
    Example:
      eval "$(tracklog stack status --exports)"
    """
    found = _stack(run).status()
    if exports:
        _tell_exports(run, found, "")
    else:
        _tell(run, found)
    if not found.healthy:
        run.faulty()


def _stack(run: Run) -> LocalStack:
    return LocalStack(Path(run.settings.home))


def _tell(run: Run, status: StackStatus) -> None:
    if run.as_json:
        run.out.json(status.as_dict())
        return
    if not status.services:
        run.out.text("nothing runs; start it with: tracklog stack up")
        return
    rows = [
        (one.name, one.url, str(one.pid), "ok" if one.healthy else "does not answer", one.log_file)
        for one in status.services
    ]
    run.out.table(("service", "address", "pid", "state", "its log"), rows, wrap=True)
    run.out.text("to use it:")
    _tell_exports(run, status, "  ")


def _tell_exports(run: Run, status: StackStatus, indent: str) -> None:
    for name, value in status.exports.items():
        run.out.text(f"{indent}export {name}={shlex.quote(value)}")
