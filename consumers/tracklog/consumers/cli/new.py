"""`tracklog new processor`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.scaffold import write_processor

app = new_app(help="Begin something of one's own.", no_args_is_help=True)


@app.callback()
def new() -> None:
    """Begin something of one's own."""


@command(app)
def processor(
    run: Run,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the processor and its package, e.g. tool-calls.")],
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Where to; ./NAME when left out.", show_default=False)
    ] = None,
) -> None:
    """Write an installable package with a processor, its test, an image and chart values. Works as it is written.

    \b
    Example:
      tracklog new processor tool-calls
    """
    target = folder if folder is not None else Path(name)
    written = write_processor(name, target)
    if run.as_json:
        run.out.json({"folder": str(target), "files": [str(path.relative_to(target)) for path in written]})
        return
    for path in written:
        run.out.text(str(path))
    run.out.note(f"next: cd {target} && pip install -e . && pytest")
