"""SQL over the cold tier: DuckDB on the files that the table names now, for reading alone.

One statement, a SELECT, with no way to the file system, the network or the settings: what is not asked of the table is
refused. Beside `events` there are views of what people ask about most; `VIEWS` has them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from typing import IO, Any, Final, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from tracklog.infra.cold.table import UNDECODABLE_TABLE, ColdTable
from tracklog.schemas.errors import ColdDamaged, ColdMissing, ColdUnavailable, InputError

__all__ = ["VIEWS", "Answer", "ask", "write_csv", "write_parquet"]

MEMORY_MB_MAX: Final = 1024
THREADS: Final = 2
ROWS_MAX: Final = 1_000_000
"""Of an answer, which is held in memory."""
BATCH_ROWS: Final = 10_000
_WRONG: Final = "the question is wrong"
_READING: Final = "reading the stream registered as"
"""What DuckDB says first of whatever Arrow could not read."""
_ALLOWED: Final = ("SELECT", "EXPLAIN")

VIEWS: Final[Mapping[str, str]] = {
    "accepted": """
        SELECT * EXCLUDE (copy) FROM (
          SELECT *, row_number() OVER (PARTITION BY trajectory_id, seq ORDER BY epoch DESC, "offset") AS copy
          FROM events
        ) WHERE copy = 1""",
    "runs": """
        SELECT s.trajectory_id, s.tenant, s.body->>'agent' AS agent, s.body->>'driver' AS driver,
          s.body->>'source' AS source, s.body->'labels' AS labels, s.body->'origin'->>'trajectory_id' AS origin,
          s.body->'parent'->>'trajectory_id' AS parent, s.append_ms AS started_ms, e.append_ms AS ended_ms,
          e.body->>'ending' AS ending, e.body->>'reason' AS reason
        FROM (SELECT * FROM accepted WHERE event_type = 'TaskStarted') s
        LEFT JOIN (SELECT * FROM accepted WHERE event_type = 'TaskEnded') e USING (trajectory_id)""",
    "replies": """
        SELECT trajectory_id, tenant, date, turn, seq, append_ms, model,
          (body->'usage'->>'input_tokens')::BIGINT AS input_tokens,
          (body->'usage'->>'output_tokens')::BIGINT AS output_tokens,
          (body->>'cost_micro_usd')::BIGINT / 1e6 AS cost_usd, (body->>'duration_ms')::BIGINT AS duration_ms,
          json_array_length(body->'tool_calls') AS calls
        FROM accepted WHERE event_type = 'ModelReplied'""",
    "calls": """
        WITH told AS (
          SELECT trajectory_id, body->>'call_id' AS call_id, event_type, append_ms, body, seq, turn, tenant
          FROM accepted WHERE event_type IN ('ToolIntent', 'ToolResult', 'InDoubt', 'Escalated')
        ), doubts AS (
          SELECT trajectory_id, call_id, bool_or(event_type = 'Escalated') AS escalated FROM told
          WHERE event_type IN ('InDoubt', 'Escalated') GROUP BY ALL
        )
        SELECT i.trajectory_id, i.tenant, i.turn, i.call_id, i.body->>'tool' AS tool, i.body->>'effect' AS effect,
          i.body->>'place' AS place, i.body->'arguments'->>'text' AS arguments, i.append_ms AS intent_ms,
          r.append_ms AS result_ms, r.body->>'status' AS status, r.body->>'settled' AS settled,
          (r.body->>'duration_ms')::BIGINT AS duration_ms, d.call_id IS NOT NULL AS in_doubt,
          coalesce(d.escalated, false) AS escalated
        FROM (SELECT * FROM told WHERE event_type = 'ToolIntent') i
        LEFT JOIN (SELECT * FROM told WHERE event_type = 'ToolResult') r USING (trajectory_id, call_id)
        LEFT JOIN doubts d USING (trajectory_id, call_id)""",
    "approvals": """
        SELECT q.trajectory_id, q.tenant, q.body->>'call_id' AS call_id, q.body->>'reason' AS reason,
          q.append_ms AS asked_ms, a.append_ms AS answered_ms, a.body->>'approver' AS approver,
          a.body->>'choice' AS choice, (a.append_ms - q.append_ms) / 1000 AS waited_s
        FROM (SELECT * FROM accepted WHERE event_type = 'ApprovalRequested') q
        LEFT JOIN (SELECT * FROM accepted WHERE event_type = 'ApprovalResolved') a
          ON a.trajectory_id = q.trajectory_id AND a.body->>'call_id' = q.body->>'call_id' AND a.seq > q.seq""",
}
"""Name -> the SELECT behind it. `accepted` is one record for each event: the one of the highest epoch, and of equal
ones the first. It is what readers accept, but of histories that `tracklog verify` finds fault with."""


class Answer(NamedTuple):
    """`cut`: there were more rows than were asked for."""

    table: pa.Table
    cut: bool

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    def rows(self) -> list[tuple[Any, ...]]:
        return [tuple(map(_number, row.values())) for row in self.table.to_pylist()]


def _number(value: Any) -> Any:
    """DuckDB gives sums of whole numbers as decimals, since they may be larger than 64 bits."""
    if not isinstance(value, Decimal):
        return value
    return int(value) if value == value.to_integral_value() else float(value)


def ask(
    url: str, options: Mapping[str, str], sql: str, *, rows_max: int = ROWS_MAX, limit_s: float, timeout_s: float = 60.0
) -> Answer:
    """Answers one SELECT, with at most `rows_max` rows, within `limit_s` seconds. Blocks.

    Raises InputError for what is no SELECT, touches anything but the table, is wrong, or takes too long; ColdMissing.
    """
    _check(sql)
    tables = {"events": ColdTable.open(url, options, timeout_s=timeout_s)}
    with suppress(ColdMissing):
        tables["undecodable"] = ColdTable.open(url, options, kind=UNDECODABLE_TABLE, timeout_s=timeout_s)
    with closing(duckdb.connect(":memory:")) as connection:
        for name, table in tables.items():
            connection.register(name, table.handle.to_pyarrow_dataset())
        for name, select in VIEWS.items():
            connection.execute(f"CREATE VIEW {name} AS {select}")
        _lock(connection)
        with _whole(tables), _bounded(connection, sql, limit_s):
            found = connection.sql(sql)
            if found is None:
                raise InputError("that has no rows to give", hint="ask with SELECT")
            return _some(found.to_arrow_reader(BATCH_ROWS), rows_max)


def write_csv(table: pa.Table, file: IO[bytes]) -> None:
    """Bytes are in hex. Raises InputError for a column that CSV has no form for."""
    for at, column in enumerate(table.schema):
        if pa.types.is_binary(column.type):
            values = [None if one is None else one.hex() for one in table.column(at).to_pylist()]
            table = table.set_column(at, column.name, pa.array(values, pa.string()))
    with _writable(table, "CSV"):
        pacsv.write_csv(table, file)


def write_parquet(table: pa.Table, file: IO[bytes]) -> None:
    """Raises InputError for a column that Parquet has no form for."""
    with _writable(table, "Parquet"):
        pq.write_table(table, file, compression="zstd")


@contextmanager
def _writable(table: pa.Table, form: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        columns = ", ".join(f"{one.name} ({one.type})" for one in table.schema if _is_odd(one.type))
        raise InputError(
            f"{form} has no form for a column of the answer: {columns or _line(error)}",
            hint="cast it in the SELECT: column::VARCHAR",
        ) from error


def _is_odd(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_interval(kind))


def _distinct(names: list[str]) -> list[str]:
    """The second column of a name gets _2, and so on: rows are told by the names of their columns."""
    made: list[str] = []
    for name in names:
        other, number = name, 1
        while other in made or (number > 1 and other in names):
            number += 1
            other = f"{name}_{number}"
        made.append(other)
    return made


@contextmanager
def _whole(tables: Mapping[str, ColdTable]) -> Iterator[None]:
    """Where a question fails since a file of a table is not there, says so. Raises ColdDamaged."""
    try:
        yield
    except (InputError, ColdUnavailable) as error:
        if _READING not in error.message:
            raise
        for table in tables.values():
            for file in table.files():
                if not table.has(file.path):
                    raise ColdDamaged(
                        f"{table.uri}/{file.path} is not there: it held {file.rows} rows",
                        hint="restore the file from a backup; `tracklog cold verify` names everything that is wrong",
                    ) from error
        raise ColdDamaged(error.message.removeprefix(f"{_WRONG}: "), hint="see `tracklog cold verify`") from error


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    """From here on it reads what is registered, and nothing else."""
    for setting in (
        "python_enable_replacements = false",
        f"memory_limit = '{MEMORY_MB_MAX}MB'",
        f"threads = {THREADS}",
        "temp_directory = ''",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")


def _check(sql: str) -> None:
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise _wrong(error) from error
    if len(statements) != 1:
        raise InputError(f"one statement is asked at a time, given are {len(statements)}", hint="ask them one by one")
    kind = statements[0].type.name
    if kind not in _ALLOWED:
        raise InputError(
            f"{kind} is refused: the table is only read here", hint="ask with SELECT; output goes where --output says"
        )


def _some(batches: pa.RecordBatchReader, rows_max: int) -> Answer:
    taken, rows = [], 0
    for batch in batches:
        taken.append(batch.slice(0, rows_max - rows))
        rows += batch.num_rows
        if rows > rows_max:
            break
    table = pa.Table.from_batches(taken, batches.schema)
    return Answer(table.rename_columns(_distinct(table.column_names)), rows > rows_max)


@contextmanager
def _bounded(connection: duckdb.DuckDBPyConnection, sql: str, limit_s: float) -> Iterator[None]:
    timer = threading.Timer(limit_s, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except duckdb.InterruptException as error:
        raise InputError(f"no answer within {limit_s:g} s", hint="ask for less, or raise --limit-s") from error
    except duckdb.PermissionException as error:
        raise InputError(
            "only the table can be asked: files, the network and settings are refused",
            hint=f"tables are events and {', '.join(VIEWS)}",
        ) from error
    except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
        raise ColdUnavailable(
            f"the question could not be answered: {_line(error)}", hint="ask for less, a day or a tenant at a time"
        ) from error
    except duckdb.Error as error:
        raise _wrong(error) from error
    finally:
        timer.cancel()


def _wrong(error: Exception) -> InputError:
    return InputError(f"{_WRONG}: {_line(error)}", hint="tables and columns: docs/query.md")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]
