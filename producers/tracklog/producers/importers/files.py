"""Recorded runs from files and folders, by the endings of their names."""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from tracklog.producers.importers import record
from tracklog.producers.importers.chat import parse_chat_jsonl
from tracklog.producers.importers.run import BadRun, Run
from tracklog.producers.importers.traj import parse_traj
from tracklog.schemas.errors import ImportSourceError
from tracklog.schemas.redaction import Redaction

CHAT_ENDINGS: Final = (".jsonl", ".ndjson")
TRAJ_ENDING: Final = ".traj"
PACKED: Final = ".xz"
SKIP_BYTES: Final = 1024 * 1024


def check_paths(paths: Iterable[Path]) -> None:
    """ImportSourceError that names the first path where nothing is."""
    for path in paths:
        if not path.exists():
            raise ImportSourceError(f"{path}: no such file or folder")


def read_runs(
    paths: Iterable[Path], *, agent: str = "", model: str = "", redaction: Redaction | None = None
) -> Iterator[Run | BadRun]:
    """The runs in files, and in all known files under folders, by name. Each may be packed with xz.

    Reads as it goes, without what `redaction` takes out. What cannot be read comes as a BadRun that names the file; the
    rest goes on.
    """
    for path in paths:
        if path.is_dir():
            yield from _folder(path, agent, model, redaction)
        else:
            yield from _file(path, agent, model, redaction)


def _folder(folder: Path, agent: str, model: str, redaction: Redaction | None) -> Iterator[Run | BadRun]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and _kind(path)]
    if not files:
        yield BadRun(file=str(folder), line=0, reason="the folder holds no .jsonl and no .traj file")
    for path in files:
        yield from _file(path, agent, model, redaction)


def _file(path: Path, agent: str, model: str, redaction: Redaction | None) -> Iterator[Run | BadRun]:
    kind = _kind(path)
    if not kind:
        yield BadRun(
            file=str(path), line=0, reason="not a known kind of file: .jsonl, .ndjson or .traj, or .xz of them"
        )
        return
    try:
        with _opened(path) as file:
            if kind == TRAJ_ENDING:
                yield parse_traj(file.read(record.RUN_BYTES_MAX + 1), str(path), redaction)
            else:
                yield from parse_chat_jsonl(_lines(file), str(path), agent=agent, model=model, redaction=redaction)
    except (OSError, EOFError, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        yield BadRun(file=str(path), line=0, reason=f"cannot be read: {reason}")


def _kind(path: Path) -> str:
    ending = Path(path.name.removesuffix(PACKED)).suffix
    return ending if ending in (*CHAT_ENDINGS, TRAJ_ENDING) else ""


def _opened(path: Path) -> IO[bytes]:
    return lzma.open(path) if path.suffix == PACKED else path.open("rb")


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines with their ends. Of a line above the bound comes enough to be refused; the rest is passed over."""
    while line := file.readline(record.RUN_BYTES_MAX + 1):
        yield line
        while not line.endswith(b"\n") and line:
            line = file.readline(SKIP_BYTES)
