"""A package of one's own with a processor in it: code, test, image and chart values, that works as it is written."""

from __future__ import annotations

import keyword
from importlib import metadata
from pathlib import Path
from typing import Final

from tracklog.processors.loading import BUILTIN
from tracklog.processors.shapes import NAME
from tracklog.schemas.errors import InputError

__all__ = ["write_processor"]

_PYPROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["tracklog>={tracklog}"]

[project.entry-points."tracklog.processors"]
{name} = "{module}.processor:{kind}"

[tool.hatch.build.targets.wheel]
packages = ["{module}"]
"""

_PROCESSOR: Final = '''\
"""{kind}: tool calls of each trajectory, and how many of them failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from tracklog.processors.processor import Processor, Seen, Shape
from tracklog.processors.writes import Rank, SetFields, Write
from tracklog.schemas.events import ToolResult
from tracklog.schemas.values import ResultStatus


class Calls(NamedTuple):
    calls: int = 0
    failed: int = 0


class {kind}(Processor[Calls]):
    """A hash `calls:TRAJECTORY`, and a sorted set `failed` of trajectories by failed calls."""

    name = "{name}"
    version = 1
    reads = frozenset({{"ToolResult"}})
    layout: ClassVar = {{"calls": Shape.HASH, "failed": Shape.SORTED_SET}}

    def start(self, key: str) -> Calls:
        return Calls()

    def apply(self, state: Calls, seen: Seen) -> Calls:
        result = seen.event.body
        failed = isinstance(result, ToolResult) and result.status is ResultStatus.ERROR
        return Calls(state.calls + 1, state.failed + failed)

    def writes(self, key: str, before: Calls | None, after: Calls) -> Iterator[Write]:
        yield SetFields(f"calls:{{key}}", after._asdict())
        if after.failed:
            yield Rank(["failed"], key, after.failed)
'''

_TEST: Final = '''\
"""Run with pytest; needs no broker and no Redis."""

from __future__ import annotations

from {module}.processor import {kind}
from tracklog.processors.testing import Driver, check_conformance, run_of


def test_it_stands_every_check() -> None:
    assert check_conformance({kind}) > 0


def test_calls_are_counted() -> None:
    driver = Driver({kind}())
    driver.feed(run_of("run-1", turns=3))
    assert driver.get("calls:run-1") == {{b"calls": b"3", b"failed": b"0"}}
    assert driver.get("failed") is None
'''

_DOCKERFILE: Final = """\
# Tracklog with this package in it. BASE is an image that has Tracklog installed.
ARG BASE
FROM ${{BASE}}
USER 0
COPY . /src/{name}
RUN python3 -m ensurepip && python3 -m pip install --no-deps /src/{name}
USER 10001:10001
CMD ["tracklog", "process", "{name}"]
"""

_VALUES: Final = """\
# For the chart: an instance of its own for this processor.
extraProcessors:
  - name: {name}
    image: ""  # the one that the Dockerfile beside this makes
"""

_README: Final = """\
# {name}

A processor for Tracklog.

    pip install -e .          # tracklog process then runs it with the others
    pytest
    tracklog process {name}
    tracklog projections list
"""


def write_processor(name: str, folder: Path) -> list[Path]:
    """The files of a new package, in a folder that is new or empty. Raises InputError."""
    if NAME.fullmatch(name) is None or name.endswith("-") or "--" in name:
        raise InputError(
            f"{name!r} is no name of a processor", hint="small letters, digits and single -, a letter first"
        )
    if keyword.iskeyword(name) or name in {kind.name for kind in BUILTIN}:
        raise InputError(f"{name!r} is taken: by Python, or by a processor that comes with Tracklog")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not empty", hint="name a folder that is not there yet")
    module = name.replace("-", "_")
    words = {
        "name": name,
        "module": module,
        "kind": "".join(part.capitalize() for part in name.split("-")),
        "tracklog": metadata.version("tracklog"),
    }
    files = {
        "README.md": _README,
        "pyproject.toml": _PYPROJECT,
        "Dockerfile": _DOCKERFILE,
        "values.yaml": _VALUES,
        f"{module}/__init__.py": "",
        f"{module}/processor.py": _PROCESSOR,
        f"tests/test_{module}.py": _TEST,
    }
    written = []
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.format(**words), encoding="utf-8")
        written.append(target)
    return written
