"""What all commands share: the options for settings and JSON, and how errors end them."""

from __future__ import annotations

import functools
import inspect
import os
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer

from tracklog.consumers.cli.run import Run

DRIFT_HELP: Final = "For runs that were left with other versions."
PANEL: Final = "Settings (before or after the command)"

_OPTIONS: Final[Mapping[str, tuple[Any, Any]]] = {
    "as_json": (
        Annotated[bool, typer.Option("--json", help="Print JSON, on standard output alone.", rich_help_panel=PANEL)],
        False,
    ),
    "log": (
        Annotated[
            str | None,
            typer.Option(metavar="URL", help="The log: sqlite:PATH or kafka://HOST:PORT.", rich_help_panel=PANEL),
        ],
        None,
    ),
    "redis": (
        Annotated[
            str | None,
            typer.Option(metavar="URL", help="Redis: embedded, or redis://HOST:PORT.", rich_help_panel=PANEL),
        ],
        None,
    ),
    "blobs": (
        Annotated[
            str | None,
            typer.Option(metavar="URL", help="Blob store: a directory, s3:// or gs://.", rich_help_panel=PANEL),
        ],
        None,
    ),
    "prefix": (
        Annotated[
            str | None,
            typer.Option(metavar="NAME", help="Starts all topics, groups and keys.", rich_help_panel=PANEL),
        ],
        None,
    ),
    "config": (
        Annotated[
            str | None,
            typer.Option(metavar="FILE", help="Settings file (else ./tracklog.toml).", rich_help_panel=PANEL),
        ],
        None,
    ),
    "settings": (
        Annotated[
            list[str] | None,
            typer.Option(
                "--set",
                metavar="NAME=VALUE",
                help="Any other setting, e.g. writer.barrier=fsync (docs/settings.md).",
                rich_help_panel=PANEL,
            ),
        ],
        None,
    ),
}

Body = Callable[..., None]


def new_app(**info: Any) -> typer.Typer:
    """The app of one module of commands."""
    return typer.Typer(add_completion=False, **info)


def command(app: typer.Typer, name: str | None = None, **info: Any) -> Callable[[Body], Body]:
    """Registers a command. Its first parameter is a `Run`; the shared options are added to the others.

    A TracklogError ends it with one line on standard error and the error's exit code, an interrupt with 130.
    """

    def register(body: Body) -> Body:
        hints = typing.get_type_hints(body, include_extras=True)
        own = [p.replace(annotation=hints[p.name]) for p in list(inspect.signature(body).parameters.values())[1:]]

        def call(ctx: typer.Context, **given: Any) -> None:
            run = Run.of(
                {**(ctx.find_root().obj or {}), **_shared(given)}, environ=os.environ, role=name or body.__name__
            )
            with run.ending():
                body(run, **given)

        functools.update_wrapper(call, body)
        _describe(call, [*own, *_shared_parameters()])
        app.command(name, **info)(call)
        return body

    return register


def root_options(callback: Callable[..., None]) -> Callable[..., None]:
    """The shared options before the command; those after it count more."""
    own = list(inspect.signature(callback, eval_str=True).parameters.values())

    def call(ctx: typer.Context, **given: Any) -> None:
        ctx.find_root().obj = _shared(given)
        callback(**given)
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help())

    functools.update_wrapper(call, callback)
    _describe(call, [*own, *_shared_parameters()])
    return call


def _shared(given: dict[str, Any]) -> dict[str, Any]:
    """Takes the shared options out of what was given; those not given are left out."""
    found = {name: given.pop(name) for name in _OPTIONS if name in given}
    return {name: value for name, value in found.items() if value not in (None, False, [])}


def _shared_parameters() -> list[inspect.Parameter]:
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, (annotation, default) in _OPTIONS.items()
    ]


def _describe(call: Any, parameters: list[inspect.Parameter]) -> None:
    """Gives a wrapper the signature that typer is to read."""
    ctx = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    chosen = [ctx, *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters)]
    call.__signature__ = inspect.Signature(chosen)
    call.__annotations__ = {p.name: p.annotation for p in chosen}
    del call.__wrapped__
