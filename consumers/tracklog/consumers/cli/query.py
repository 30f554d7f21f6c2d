"""`tracklog query`"""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.target_file import target_file
from tracklog.schemas.errors import InputError

if TYPE_CHECKING:
    from tracklog.consumers.querying import Answer

app = new_app()

CELL_CHARS_MAX: Final = 200


class Form(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@command(app)
def query(
    run: Run,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT; `-` reads it from standard input.")],
    form: Annotated[Form, typer.Option("--format", help="How the answer is written.")] = Form.TABLE,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it to a file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    most: Annotated[int, typer.Option("--max", min=1, max=1_000_000, help="At most so many rows.")] = 10_000,
    limit_s: Annotated[float, typer.Option("--limit-s", min=0.1, help="The longest that it may take.")] = 300.0,
) -> None:
    """Ask the cold tier in SQL (DuckDB). Read only: no files, no network, no settings, one SELECT.

    Tables: events, and the views accepted, runs, replies, calls and approvals (docs/query.md).

    \b
    Examples:
      tracklog query "SELECT tenant, model, sum(cost_usd) FROM replies GROUP BY ALL"
      tracklog query "SELECT * FROM calls WHERE in_doubt" --format parquet --output doubts.parquet
    """
    try:
        from tracklog.consumers.querying import ask
    except ImportError as error:
        raise InputError(
            "asking the cold tier needs duckdb and deltalake", hint="install them: pip install 'tracklog[export]'"
        ) from error
    form = Form.JSON if run.as_json else form
    if form is Form.PARQUET and output is None:
        raise InputError("Parquet needs a file", hint="name one: --output FILE.parquet")
    cold = run.settings.cold
    text = sys.stdin.read() if sql == "-" else sql
    answer = ask(cold.url, cold.store_options(), text, rows_max=most, limit_s=limit_s, timeout_s=cold.timeout_s)
    if output is None:
        _print(run, answer, form)
    else:
        _write(answer, form, output, force=force)
    if answer.cut:
        run.out.warning(f"there are more rows than {most}; --max gives more")


def _print(run: Run, answer: Answer, form: Form) -> None:
    if form is Form.JSON:
        run.out.json([dict(zip(answer.columns, row, strict=True)) for row in answer.rows()])
    elif form is Form.CSV:
        from tracklog.consumers.querying import write_csv

        sys.stdout.flush()
        write_csv(answer.table, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    else:
        rows = [[_cell(value) for value in row] for row in answer.rows()]
        run.out.table(answer.columns, rows)


def _write(answer: Answer, form: Form, output: Path, *, force: bool) -> None:
    from tracklog.consumers.querying import write_csv, write_parquet

    if form is Form.TABLE:
        raise InputError("a table is for people to read", hint="write --format csv, json or parquet to a file")
    with target_file(output, force=force) as file:
        if form is Form.PARQUET:
            write_parquet(answer.table, file)
        elif form is Form.CSV:
            write_csv(answer.table, file)
        else:
            rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows()]
            file.write(json.dumps(rows, indent=2, ensure_ascii=False, default=_plain).encode() + b"\n")


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = value.hex() if isinstance(value, bytes) else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= CELL_CHARS_MAX else f"{text[:CELL_CHARS_MAX]}…"
