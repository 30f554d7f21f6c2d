"""What a process says about itself, as JSON lines with what they are about."""

from __future__ import annotations

import asyncio
import json
import logging

from tracklog.infra.clock import ManualClock
from tracklog.infra.lines import AUDIT, JsonLines, about, about_now

LINES = JsonLines("worker", ManualClock())


def test_a_line_has_time_level_role_and_what_it_is_about() -> None:
    with about(trajectory="t-1", partition=0), about(call="c-1", offset=0):
        line = LINES.line("warning", "slow", hint="", trace=None)
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.000Z",
        "level": "warning",
        "role": "worker",
        "trajectory": "t-1",
        "partition": 0,
        "call": "c-1",
        "offset": 0,
        "message": "slow",
    }
    assert "\n" not in LINES.line("info", "two\nlines")
    assert about_now() == {}


async def test_tasks_side_by_side_are_about_their_own() -> None:
    async def one(name: str) -> str:
        with about(trajectory=name):
            await asyncio.sleep(0)
            return str(json.loads(LINES.line("info", "x"))["trajectory"])

    assert list(await asyncio.gather(one("a"), one("b"))) == ["a", "b"]


def _record(name: str, message: str, exc_info: object = None) -> logging.LogRecord:
    return logging.LogRecord(name, logging.ERROR, "f.py", 1, message, (), exc_info)  # type: ignore[arg-type]


def test_python_s_own_logging_is_lines_too_and_the_audit_log_keeps_its_fields() -> None:
    try:
        raise ValueError("bad")
    except ValueError as error:
        found = json.loads(LINES.format(_record("uvicorn", "oh", (ValueError, error, error.__traceback__))))
    assert (found["logger"], found["level"], found["message"]) == ("uvicorn", "error", "oh")
    assert "ValueError: bad" in found["trace"]
    audited = json.loads(LINES.format(_record(AUDIT, '{"who": "ada", "what": "cancel", "trajectory": "t-1"}')))
    assert (audited["who"], audited["trajectory"], audited["message"]) == ("ada", "t-1", "audit")
    assert json.loads(LINES.format(_record(AUDIT, "no object")))["said"] == "no object"
