"""The tracked files of this repository, and their syntax trees: what the tidiness tests look at."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ROLES = ("schemas", "infra", "producers", "processors", "consumers")
GIT_TIMEOUT_S = 30

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tracked() -> tuple[Path, ...]:
    """Files that are in git or about to be, relative to the root; what .gitignore names is left out."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=GIT_TIMEOUT_S)
    names = sorted({name for name in listed.stdout.decode().split("\0") if name})
    return tuple(Path(name) for name in names if (ROOT / name).is_file())


def python_files(*, tests: bool) -> list[Path]:
    """Tracked Python files: those below tests/, or all others."""
    return [path for path in tracked() if path.suffix == ".py" and (path.parts[0] == "tests") == tests]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=str(path))


def functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def function_lines(paths: Iterable[Path]) -> dict[str, int]:
    """Lines of each function, by `file:name`; the longest where a file has several of one name."""
    lines: dict[str, int] = {}
    for path in paths:
        for node in functions(path):
            name = f"{path}:{node.name}"
            lines[name] = max(lines.get(name, 0), (node.end_lineno or node.lineno) - node.lineno + 1)
    return lines


def line_total(path: Path) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


def everywhere(paths: Iterable[Path], found: Callable[[ast.AST], bool]) -> list[str]:
    """`file:line` of every node for which `found` says yes."""
    return [f"{path}:{getattr(node, 'lineno', 0)}" for path in paths for node in ast.walk(parsed(path)) if found(node)]


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Top-level names a file imports, wherever in it, with the line."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name.partition(".")[0], node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.module.partition(".")[0], node.lineno


def module_name(path: Path) -> str:
    """`infra/tracklog/infra/blobs.py` is `tracklog.infra.blobs`."""
    return ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")
