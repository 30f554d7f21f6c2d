"""The shape of the code: short, explicit, nothing swallowed, nothing left unwritten."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.tree import everywhere, function_lines, line_total, parsed, python_files

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 400

LONG_FUNCTIONS: dict[str, int] = {}
"""Functions over the limit and their lines today: a ratchet, it may shrink and not grow."""


def test_functions_fit_on_a_page() -> None:
    lines = function_lines(python_files(tests=False))
    too_long = {name: n for name, n in lines.items() if n > LONG_FUNCTIONS.get(name, FUNCTION_LINES_MAX)}

    assert too_long == {}, f"more than {FUNCTION_LINES_MAX} lines: split them"


def test_the_ratchet_names_only_functions_that_are_as_long_as_it_says() -> None:
    lines = function_lines(python_files(tests=False))

    assert {name: lines.get(name) for name in LONG_FUNCTIONS} == LONG_FUNCTIONS


def test_files_hold_one_concept() -> None:
    long = {str(path): line_total(path) for path in python_files(tests=False) if "data" not in path.parts}

    assert {name: n for name, n in long.items() if n > FILE_LINES_MAX} == {}, "find the second concept in it"


def test_nothing_is_left_unwritten() -> None:
    def unwritten(node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == "NotImplementedError"

    assert everywhere(python_files(tests=False), unwritten) == []


def test_no_error_is_swallowed() -> None:
    """`except: pass`, and bare `except:` always. An error that is expected is named in contextlib.suppress."""

    def swallowed(node: ast.AST) -> bool:
        return isinstance(node, ast.ExceptHandler) and (node.type is None or all(map(_is_nothing, node.body)))

    assert everywhere(_all_files(), swallowed) == []


def test_suppress_names_narrow_errors() -> None:
    def wide(node: ast.AST) -> bool:
        if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress")):
            return False
        return bool({ast.unparse(argument) for argument in node.args} & {"Exception", "BaseException"})

    assert everywhere(_all_files(), wide) == []


def test_all_is_sorted_and_names_what_is_there() -> None:
    unsorted = [str(path) for path in _all_files() if (names := _declared_all(path)) != _sorted(names)]
    missing = [f"{path}: {name}" for path in _all_files() for name in set(_declared_all(path)) - set(_names(path))]

    assert unsorted == []
    assert missing == []


def _all_files() -> list[Path]:
    return [*python_files(tests=False), *python_files(tests=True)]


def _is_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Pass):
        return True
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _declared_all(path: Path) -> list[str]:
    for node in parsed(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def _sorted(names: list[str]) -> list[str]:
    """As ruff's RUF022 would: CONSTANTS, then Classes, then functions."""
    return sorted(names, key=lambda name: (0 if name.isupper() else 1 if name[:1].isupper() else 2, name))


def _names(path: Path) -> Iterator[str]:
    """Every name that the file defines or imports, wherever in it."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
