"""The tests themselves: each one asserts something, none sleeps, none is switched off for good."""

from __future__ import annotations

import ast

from tests.tidy.tree import Function, everywhere, functions, python_files


def test_every_test_asserts_something() -> None:
    helpers = {node.name for path in python_files(tests=True) for node in functions(path) if _has_assert(node)}
    empty = [
        f"{path}:{node.lineno} {node.name}"
        for path in python_files(tests=True)
        for node in functions(path)
        if node.name.startswith("test_") and not _asserts(node, helpers)
    ]

    assert empty == []


def _asserts(test: Function, helpers: set[str]) -> bool:
    """An assert, `pytest.raises`, `pytest.fail`, or a call of a function in tests/ that has an assert."""
    calls = {ast.unparse(node.func).rpartition(".")[2] for node in ast.walk(test) if isinstance(node, ast.Call)}
    return _has_assert(test) or bool(calls & (helpers | {"raises", "fail"}))


def _has_assert(function: Function) -> bool:
    return any(isinstance(node, ast.Assert) for node in ast.walk(function))


def test_no_test_sleeps() -> None:
    def sleeps(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep")

    assert everywhere(python_files(tests=True), sleeps) == [], "wait for a condition with a bound"


def test_no_test_is_switched_off_for_good() -> None:
    def off(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and ast.unparse(node) in ("pytest.mark.skip", "pytest.mark.xfail")

    assert everywhere(python_files(tests=True), off) == []
