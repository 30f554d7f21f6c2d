"""The root of the command line. Commands are listed here by name and loaded when they are called."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
import typer.core
import typer.main
from typer.exceptions import TyperException

from tracklog.consumers.cli.command import root_options
from tracklog.consumers.cli.streams import guarded_streams
from tracklog.consumers.cli.usage import ends_with_help, is_json, told

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("demo", "See it work: import recorded runs, list, show, verify and replay them."),
    "import": ("import_runs", "Import recorded agent runs, each once."),
    "list": ("list_runs", "List trajectories."),
    "show": ("show", "Show one trajectory as a timeline."),
    "watch": ("watch", "Watch agents at work."),
    "at": ("at", "Show a trajectory as it was at the end of a turn."),
    "diff": ("diff", "Compare two trajectories turn by turn."),
    "pull": ("pull", "Bring one trajectory to a file of this machine."),
    "verify": ("verify", "Check the hash chain and the verdicts of trajectories."),
    "replay": ("replay", "Read ranges of the log again, and run agents over their records."),
    "swarm": ("swarm", "Show who of a swarm waits for whom."),
    "fork": ("fork", "Run an agent again from a turn of a recorded run, with one thing changed."),
    "worker": ("worker", "Run submitted tasks."),
    "dispatch": ("dispatch", "Perform the calls that agents leave to dispatchers."),
    "tools": ("tools", "Look at tools that dispatchers run, pause and resume them."),
    "route": ("route", "Say into inboxes what time and other trajectories have to say."),
    "serve": ("serve", "Serve the HTTP API."),
    "tokens": ("tokens", "Make a bearer token for the API."),
    "submit": ("submit", "Give a task to the workers."),
    "result": ("result", "Tell how a trajectory ended."),
    "send": ("send", "Say something to a trajectory."),
    "cancel": ("cancel", "Have trajectories end."),
    "retry": ("retry", "Let stopped trajectories go on."),
    "approvals": ("approvals", "Look at held calls, and decide about them."),
    "escalations": ("escalations", "Look at calls that may have happened, and say what became of them."),
    "annotate": ("annotate", "Judge a trajectory, a turn or a call."),
    "refused": ("refused", "List what was said to trajectories and not taken."),
    "cadence": ("cadence", "Show how often checkpoints are taken, and what that costs."),
    "process": ("process", "Fold the log into Redis."),
    "export": ("export", "Stream every event into the cold tier, once."),
    "cold": ("cold", "Look after the cold tier, and take runs out of it to train models on."),
    "query": ("query", "Ask the cold tier in SQL."),
    "blobs": ("blobs", "Let go of blobs that no record names any more."),
    "retention": ("retention", "Let go of what the log need not keep any more."),
    "new": ("new", "Begin something of one's own."),
    "projections": ("projections", "Look at what is folded into Redis, compare it with the log, build it anew."),
    "quarantine": ("quarantine", "Look at records that are no events."),
    "topics": ("topics", "Create and check the topics."),
    "schemas": ("schemas", "Check that this version reads what is there."),
    "acls": ("acls", "Print the rights that each role needs."),
    "stack": ("stack", "Start and stop a local Kafka and Redis."),
    "selftest": ("selftest", "Write a small trajectory, and see that it comes back."),
    "doctor": ("doctor", "Check that everything needed is there and sound."),
}
"""Command -> its module here, and its line in the help."""

TERMINATED: Final = 128 + signal.SIGTERM

EXIT_CODES: Final = """\b
Exit codes: 0 fine · 1 faults found, or some input refused · 2 bad input · 3 log, Redis, blobs or output unavailable ·
4 outcome unknown · 5 fenced · 70 client fatal · 130 interrupted · 141 pipe closed"""


class LazyGroup(typer.core.TyperGroup):
    """Knows all commands by name and line; imports the module of the one that is called."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Ends the process, also one whose call cannot be read: told as every other error is."""
        try:
            ended = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except TyperException as error:
            ended = error.exit_code
            if ends_with_help(error):
                typer.echo(error.message, err=True)
            else:
                from tracklog.consumers.cli.output import Output

                Output(as_json=is_json(args)).error(told(error))
        except typer.Abort:  # a question whose answer did not come
            typer.echo("aborted", err=True)
            ended = 1
        sys.exit(ended or 0)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, line = COMMANDS[cmd_name]
        if getattr(self, "_listing", False):
            return typer.core.TyperCommand(cmd_name, help=line, callback=lambda: None)
        app = importlib.import_module(f"tracklog.consumers.cli.{module}").app
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        self.commands = dict.fromkeys(COMMANDS, typer.core.TyperCommand("stub"))  # for "did you mean"
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=LazyGroup,
    add_completion=False,
    no_args_is_help=True,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
@root_options
def root(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version and leave.", is_eager=True)] = False
) -> None:
    """Tracklog: the durable, replayable record of what AI agents did."""
    if version:
        typer.echo(f"tracklog {importlib.import_module('importlib.metadata').version('tracklog')}")
        raise typer.Exit


def hear_sigterm(pid: int) -> None:
    """Process 1 of a container is not ended by a signal that it does not handle: SIGTERM, before a command handles it
    itself, would be lost, and the container be killed when its grace period is over."""
    if pid == 1:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))


def main() -> None:
    """Entry point of `tracklog`."""
    hear_sigterm(os.getpid())
    with guarded_streams():
        app()
