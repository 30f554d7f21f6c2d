"""Writes docs/cli.md from the commands; `--check` only says whether it is up to date."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from scripts.page import write_or_check
from tracklog.consumers.cli.app import COMMANDS, app

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """\
# Command line

Written by `scripts/cli_doc.py` from `consumers/tracklog/consumers/cli/`; change it there.

Every command takes the options at the end of this page, before or after its own. Results go to standard output,
everything about the run itself to standard error; with `--json` standard output holds one JSON document, or one a
line where the page says so, and an error is one JSON object on standard error. On a terminal there are colours and
progress bars, elsewhere plain lines. What each exit code means is in [exit-codes.md](exit-codes.md).
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD, "| command | |", "| --- | --- |"]
    parts += [f"| [`{name}`](#{name}) | {line} |" for name, (_, line) in COMMANDS.items()]
    for name in COMMANDS:
        parts += _command(_loaded(name), name)
    parts += ["", "## Options of every command", "", *_options(_root().params)]
    return "\n".join(parts) + "\n"


def names() -> Iterator[str]:
    """Every command that can be called, with its group."""
    for name in COMMANDS:
        inner = getattr(_loaded(name), "commands", None)
        yield from (f"{name} {one}" for one in inner) if inner else (name,)


def _root() -> Any:
    return typer.main.get_command(app)


def _loaded(name: str) -> Any:
    return _root().get_command(None, name)


def _command(command: Any, name: str) -> list[str]:
    inner = getattr(command, "commands", None)
    if inner:
        parts = ["", f"## {name}", "", command.help or ""]
        for one, sub in inner.items():
            parts += _described(sub, f"{name} {one}", "###")
        return parts
    return _described(command, name, "##")


def _described(command: Any, name: str, level: str) -> list[str]:
    text, _, examples = (command.help or "").partition("\b\n")
    shared = {param.name for param in _root().params}
    own = [param for param in command.params if param.name not in shared]
    usage = " ".join(["tracklog", name, *(_metavar(p) for p in own if p.param_type_name == "argument"), "[OPTIONS]"])
    parts = ["", f"{level} {name}", "", *_paragraphs(text), "```", usage, "```"]
    if examples.strip():
        lines = examples.rstrip().splitlines()
        parts += ["", lines[0].strip(), "", "```sh", *(line.strip() for line in lines[1:]), "```"]
    options = _options(own)
    return [*parts, "", *options] if options else parts


def _paragraphs(text: str) -> list[str]:
    return [line for block in text.strip().split("\n\n") for line in (" ".join(block.split()), "")]


def _options(params: list[Any]) -> list[str]:
    rows = []
    for param in params:
        if param.name in ("help", "version") or getattr(param, "hidden", False):
            continue
        names = _metavar(param) if param.param_type_name == "argument" else _flags(param)
        default = getattr(param, "default", None)
        shown = f" Default `{default}`." if default not in (None, False, "", (), []) and not callable(default) else ""
        rows.append(f"| `{names}` | {(param.help or '').replace('|', '&#124;')}{shown} |")
    return ["| | |", "| --- | --- |", *rows] if rows else []


def _flags(param: Any) -> str:
    names = ", ".join([*param.opts, *param.secondary_opts]).strip()
    value = "" if param.is_flag else f" {param.metavar or param.name.upper()}"
    return names + value


def _metavar(param: Any) -> str:
    return str(param.metavar or param.name.upper())


if __name__ == "__main__":
    raise SystemExit(write_or_check(PAGE, page()))
