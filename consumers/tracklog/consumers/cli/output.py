"""Printing: JSON or text on standard output, everything about the run itself on standard error.

On a terminal text is laid out and coloured; elsewhere it is plain, so that it can be piped and compared.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from tracklog.schemas.errors import TracklogError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tracklog.infra.lines import JsonLines

PLAIN_WIDTH: Final = 160
"""Columns where there is no terminal to ask."""
PROGRESS_EVERY: Final = 10
"""Off a terminal, one line of progress for each tenth."""
RUNS_PER_LINE: Final = 100
"""The same where the total is not known."""

Advance = Callable[[int], None]


class Output:
    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.lines: JsonLines | None = None
        """Where it is set, what is said about the run is JSON, a line each."""

    @cached_property
    def console(self) -> Console:
        return _console(stderr=False)

    @cached_property
    def errors(self) -> Console:
        return _console(stderr=True)

    def json(self, value: Any) -> None:
        """One document, indented; nothing else may be printed with it."""
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=_plain) + "\n")

    def json_line(self, value: Any) -> None:
        """One document of a stream, on one line."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False, default=_plain) + "\n")

    def text(self, line: str = "", *, style: str = "") -> None:
        """One line for people; not printed with --json."""
        if not self.as_json:
            self.console.print(line, style=style or None, markup=False, highlight=False, soft_wrap=True)

    def note(self, line: str) -> None:
        """About the run, on standard error, under --json too."""
        if not self._as_line("info", line):
            self.errors.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)

    def _as_line(self, level: str, message: str, **more: object) -> bool:
        if self.lines is None:
            return False
        sys.stderr.write(self.lines.line(level, message, **more) + "\n")
        sys.stderr.flush()
        return True

    def warning(self, line: str) -> None:
        if not self._as_line("warning", line):
            self.errors.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        title: str = "",
        right: Sequence[str] = (),
        wrap: bool = False,
    ) -> None:
        """A table on a terminal; elsewhere the cells of a row, two spaces between columns.

        On a terminal that is too narrow the last column is cut, or folded with `wrap`.
        """
        if self.as_json:
            return
        if self.console.is_terminal:
            self.console.print(_rich_table(columns, rows, title, right, wrap=wrap))
        else:
            for line in _plain_table(columns, list(rows), right):
                self.text(line)

    def error(self, error: TracklogError) -> None:
        named = {"error": type(error).__name__, "hint": error.hint, "exit_code": error.exit_code}
        if self._as_line("error", error.message, **named):
            return
        if self.as_json:
            document = {
                "type": type(error).__name__,
                "message": error.message,
                "hint": error.hint,
                "definite": error.definite,
                "exit_code": error.exit_code,
            }
            sys.stderr.write(json.dumps({"error": document}, ensure_ascii=False) + "\n")
            return
        self.errors.print(f"error: {error.message}", style="bold red", markup=False, highlight=False, soft_wrap=True)
        if error.hint:
            self.errors.print(f"  hint: {error.hint}", markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Advance]:
        """A bar on a terminal, now and then a plain line elsewhere; always on standard error."""
        if self.errors.is_terminal and not self.as_json and self.lines is None:
            with self._bar(what, total) as advance:
                yield advance
        else:
            yield self._lines(what, total)

    @contextmanager
    def _bar(self, what: str, total: int | None) -> Iterator[Advance]:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.errors) as progress:
            task = progress.add_task(what, total=total)
            yield lambda steps: progress.advance(task, steps)

    def _lines(self, what: str, total: int | None) -> Advance:
        done = told = 0
        step = RUNS_PER_LINE if total is None else max(1, total // PROGRESS_EVERY)

        def advance(steps: int) -> None:
            nonlocal done, told
            done += steps
            if not self.as_json and (done - told >= step or (done == total and done > told)):
                told = done
                self.note(f"{what}: {done}" if total is None else f"{what}: {done} of {total}")

        return advance

    def flush(self) -> None:
        sys.stdout.flush()


def _rich_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str, right: Sequence[str], *, wrap: bool
) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for number, name in enumerate(columns, start=1):
        justify: Any = "right" if name in right else "left"
        # Of columns that may not wrap rich takes width from all alike: so only the last one may.
        table.add_column(name, justify=justify, no_wrap=number < len(columns))
    for row in rows:
        styled = [Text(cell, style=_STYLES.get(cell, "")) for cell in row]
        if not wrap:
            styled[-1].no_wrap, styled[-1].overflow = True, "ellipsis"
        table.add_row(*styled)
    return table


def _plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> Iterator[str]:
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(columns, row, widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH, color_system=None, emoji=False)
    return console


_STYLES: Final[Mapping[str, str]] = {
    "completed": "green",
    "sound": "green",
    "ok": "green",
    "accepted": "green",
    "running": "cyan",
    "claimed": "cyan",
    "waiting": "yellow",
    "in doubt": "yellow",
    "cancelled": "dim",
    "failed": "red",
    "faulty": "bold red",
    "refused": "red",
    "fault": "bold red",
}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "_asdict"):
        return value._asdict()
    return str(value)
