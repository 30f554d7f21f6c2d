"""Standard output and standard error below every writer: rich, typer, print and the bytes of a replay alike.

A failure to write is made `OutputLost` where the bytes leave the process, so that no layer above takes it for one
of its own (rich and typer each end the process with 1 when a pipe is closed, which here means faults found).
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tracklog.schemas.errors import OutputError

PIPE_CLOSED: Final = 141
"""What a shell reports of a program that nobody listens to any more."""
STDIN, STDOUT, STDERR = range(3)


class OutputLost(Exception):
    """Standard output took no more. Not an OSError and not a TracklogError: it is handled in one place only."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _Output(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputLost(error) from error


class _Messages(io.FileIO):
    """What is said about a run cannot be said elsewhere when this fails; the exit code still tells how it ended."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


@contextmanager
def guarded_streams() -> Iterator[None]:
    """For the whole life of the process: ends it with 141 when a pipe was closed, with 3 when output failed."""
    _fill_closed()
    sys.stdout = _text(_Output(STDOUT, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Messages(STDERR, "w", closefd=False), sys.stderr, errors="backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OutputLost as lost:
        _discard_output()
        if lost.cause.errno == errno.EPIPE:
            sys.exit(PIPE_CLOSED)
        from tracklog.consumers.cli.output import Output

        error = OutputError(
            f"standard output cannot be written: {lost.cause.strerror}", hint="what was printed is not complete"
        )
        Output(as_json="--json" in sys.argv).error(error)
        sys.exit(error.exit_code)


def _fill_closed() -> None:
    """A stream that was closed before we started keeps its number, so that no file opened later gets it and is
    written into. It is one that cannot be written: a command that prints nothing still works."""
    for number in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # takes the lowest number that is free: this one


def _text(raw: io.FileIO, like: Any, *, errors: str = "strict") -> io.TextIOWrapper:
    """A stream as Python made it, or would have made it."""
    if like is None:
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors=errors)
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(
        buffered,
        encoding=like.encoding,
        errors=like.errors,
        line_buffering=like.line_buffering,
        write_through=like.write_through,
    )


def _discard_output() -> None:
    """The interpreter flushes once more when it leaves."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
