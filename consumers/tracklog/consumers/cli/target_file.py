"""The file a replay is written to: whole or not at all where there is a file to make, and straight in elsewhere."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, Final

from tracklog.infra.clock import SystemEntropy
from tracklog.schemas.errors import InputError, OutputError

WRONG_PATH: Final = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
"""What the path given is to blame for; any other failure is of the disk behind it."""
MODE: Final = 0o666
"""Before the umask, as every program that makes a file asks for it."""


class _Prompt(io.BufferedWriter):
    """Every write is in the file when it returns."""

    def write(self, data: Any, /) -> int:
        written = super().write(data)
        self.flush()
        return written


@contextmanager
def target_file(path: Path, *, force: bool, at_once: bool = False) -> Iterator[IO[bytes]]:
    """What is there already is replaced with `force` when it is a regular file, through a link in the place it
    leads to. A device or a FIFO is written to and never replaced.

    `at_once`: what is written is in the file itself from the beginning, so that others can follow it; else it
    appears when all of it is there. Raises InputError for a path that cannot be written, OutputError when it
    takes no more.
    """
    with _told(path), _opened(path, force=force, at_once=at_once) as file:
        yield file


def check_target(path: Path) -> None:
    """For what is written at the end of long work: raises at its beginning what `target_file` would, where that can be
    known. Leaves what is there as it is."""
    with _told(path):
        kind = _kind(path)
        if kind is None or stat.S_ISREG(kind):
            descriptor, temporary = _temporary(path.resolve())
            os.close(descriptor)
            temporary.unlink()
        elif not (stat.S_ISCHR(kind) or stat.S_ISFIFO(kind)):
            raise _no_target(path)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise _exists(path) from error
    except WRONG_PATH as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error


def _kind(path: Path) -> int | None:
    """The mode of what is there; None when nothing is."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _exists(path: Path) -> InputError:
    return InputError(f"{path} exists", hint="name another file, or say --force to overwrite it")


def _opened(path: Path, *, force: bool, at_once: bool) -> AbstractContextManager[IO[bytes]]:
    kind = _kind(path)
    if kind is not None and not stat.S_ISREG(kind):
        return _special(
            path, kind, at_once=at_once
        )  # by the name given: what /dev/stdout leads to may have no name of its own
    if kind is not None and not force:
        raise _exists(path)
    if at_once:
        return _Prompt(io.FileIO(path, "w" if force else "x"))
    return _whole(path.resolve(), MODE if kind is None else stat.S_IMODE(kind), force=force)


def _special(path: Path, kind: int, *, at_once: bool) -> IO[bytes]:
    if not (stat.S_ISCHR(kind) or stat.S_ISFIFO(kind)):
        raise _no_target(path)
    return (_Prompt if at_once else io.BufferedWriter)(io.FileIO(path, "w"))


def _no_target(path: Path) -> InputError:
    return InputError(f"{path} is no file that can be written", hint="name a file, a FIFO or a character device")


def _temporary(path: Path, mode: int = MODE) -> tuple[int, Path]:
    """A new file beside it."""
    temporary = path.with_name(f".{path.name[:64]}.{SystemEntropy().nonce().hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    return descriptor, temporary


@contextmanager
def _whole(path: Path, mode: int, *, force: bool) -> Iterator[IO[bytes]]:
    descriptor, temporary = _temporary(path, mode)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if force:
            temporary.replace(path)
        else:
            os.link(temporary, path)  # fails when somebody else has made it meanwhile
    finally:
        temporary.unlink(missing_ok=True)
