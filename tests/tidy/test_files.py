"""What may lie in the repository: no package registries, no paths of one machine, no litter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.tree import ROLES, ROOT, tracked

FILE_BYTES_MAX = 2 * 1024 * 1024
REGISTRY_HOSTS = re.compile(
    r"files\.pythonhosted\.org|\bpypi\.(org|python\.org)|registry\.npmjs\.org|repo1?\.maven\.(apache\.)?org"
    r"|static\.crates\.io|proxy\.golang\.org|deb\.debian\.org|\b(docker|ghcr|quay)\.io/",
    re.IGNORECASE,
)
MACHINE_PATHS = re.compile(r"(?<![\w.])/(root|work|home/\w+|Users/\w+)/")
BINARY_SUFFIXES = {".gz", ".zst", ".bin", ".avro", ".db", ".png", ".xz"}
RECORDED = "data"
"""Folders of this name hold recorded runs and golden bytes: other people's text, kept as it was."""


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path}:{number} {line.strip()[:120]}"
        for path in text_files()
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def text_files() -> list[Path]:
    own = [path for path in tracked() if path.suffix not in BINARY_SUFFIXES and RECORDED not in path.parts]
    return [path for path in own if path.name != Path(__file__).name]


def test_no_package_registry_is_named() -> None:
    assert lines_with(REGISTRY_HOSTS) == []


def test_no_path_of_one_machine_is_named() -> None:
    assert lines_with(MACHINE_PATHS) == []


def test_text_files_end_with_one_newline_and_have_no_carriage_returns() -> None:
    content = {str(path): (ROOT / path).read_bytes() for path in text_files()}
    odd = [name for name, data in content.items() if data and (not data.endswith(b"\n") or data.endswith(b"\n\n"))]

    assert odd == []
    assert [name for name, data in content.items() if b"\r" in data] == []


def test_files_are_small() -> None:
    large = {str(path): size for path in tracked() if (size := (ROOT / path).stat().st_size) > FILE_BYTES_MAX}

    assert large == {}


@pytest.mark.parametrize("role", ROLES)
def test_each_role_is_a_typed_part_of_one_namespace(role: str) -> None:
    assert (ROOT / role / "tracklog" / role / "py.typed").is_file()
    assert not (ROOT / role / "tracklog" / "__init__.py").exists(), "it would hide the other roles"
