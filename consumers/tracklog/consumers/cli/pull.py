"""`tracklog pull`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.pulling import Pulled, pull
from tracklog.consumers.wiring import blobs_of, check_topic, opened_log
from tracklog.infra.settings import Settings
from tracklog.schemas.errors import InputError

SCHEME: Final = "sqlite:"
LOST_SHOWN_MAX: Final = 20

app = new_app()


@command(app, name="pull")
def pull_command(
    run: Run,
    trajectory_id: Annotated[str, typer.Argument(metavar="ID", help="The trajectory.")],
    to: Annotated[str, typer.Option("--to", metavar="sqlite:FILE", help="The log to bring it into.")],
) -> None:
    """Bring one trajectory to a file of this machine: its events, inbox and ledger, its blobs and what it was forked
    from.

    There show, at, diff, verify, replay trajectory and fork work without the log it came from. Blobs go into the
    directory `blobs` beside the file. Pulled again, only what is new is added. Each record and blob is checked
    against its hash; exit code 1 when a blob is missing or altered, or the trajectory is faulty.

    \b
    Examples:
      tracklog --log kafka://broker:9092 pull airline-17-3 --to sqlite:bugs/log.db
      tracklog --set home=bugs show airline-17-3
    """
    there = _settings_of(run, to)
    with opened_log(run.settings) as source:
        check_topic(source, run.settings)
        with opened_log(there) as target:
            pulled = pull(
                source,
                target,
                run.settings.topic_names,
                trajectory_id,
                blobs=(blobs_of(run.settings), blobs_of(there)),
                progress=run.out.progress,
            )
    if run.as_json:
        run.out.json(
            {
                **pulled._asdict(),
                "blobs": {**pulled.blobs._asdict(), "lost": [one._asdict() for one in pulled.blobs.lost]},
                "faults": {one: [fault._asdict() for fault in found] for one, found in pulled.faults.items()},
                "log": there.log.url,
                "blob_store": there.blobs.url,
            }
        )
    else:
        tell(run, pulled, there)
    if not pulled.whole:
        run.faulty()


def _settings_of(run: Run, to: str) -> Settings:
    """Those of the target. Raises InputError for what is no file."""
    if not to.startswith(SCHEME) or to == SCHEME:
        raise InputError(f"--to {to} is no file to bring it into", hint="for example --to sqlite:bugs/log.db")
    home = Path.cwd() / Path(to.removeprefix(SCHEME)).parent
    flags = {"log": to, "home": str(home), "blobs": str(home / "blobs"), "prefix": run.settings.prefix}
    return run.with_flags({**flags, "topics.replication_factor": 1, "topics.min_insync_replicas": 1}).settings


def tell(run: Run, pulled: Pulled, there: Settings) -> None:
    *origins, trajectory_id = pulled.trajectories
    forked = f", forked from {', '.join(reversed(origins))}" if origins else ""
    if pulled.nothing_new:
        run.out.text(f"{trajectory_id}{forked}: nothing new; {pulled.records_held} records are there")
    else:
        new = f"{pulled.records_new} records and {pulled.blobs.new} blobs are new"
        run.out.text(f"{trajectory_id}{forked}: {new}, {pulled.records_held} and {pulled.blobs.held} were there")
    lost = pulled.blobs.lost
    for one in lost[:LOST_SHOWN_MAX]:
        run.out.warning(f"{one.problem}; named by {one.named_by}")
    if len(lost) > LOST_SHOWN_MAX:
        run.out.warning(f"{len(lost) - LOST_SHOWN_MAX} more blobs could not be brought")
    for faulty, found in pulled.faults.items():
        run.out.warning(f"{faulty} is faulty at event {found[0].seq}: {found[0].kind.value}: {found[0].detail}")
    run.out.text(f"look at it: tracklog {_flags(there)} show {trajectory_id}", style="dim")


def _flags(there: Settings) -> str:
    """What makes other commands read the target."""
    file = Path(there.log.url.removeprefix(SCHEME))
    flags = f"--set home={_short(file.parent)}"
    if file.name != "log.db":
        flags += f" --log {SCHEME}{_short(file)}"
    return flags if there.prefix == Settings().prefix else f"{flags} --prefix {there.prefix}"


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
