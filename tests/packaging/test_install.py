"""The wheel as a user has it: installed beside their own code, found by Python and by a type checker."""

from __future__ import annotations

import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.packaging.conftest import Built, run

CLIENT = """
from importlib.resources import files
from tracklog.infra.settings import Settings
from tracklog.schemas.topics import Topics, TopicSpec

names: tuple[str, str, str, str, str] = Topics("mine").all
specs: tuple[TopicSpec, ...] = Settings().topic_specs()
print(len(names), len(specs), len(list(files("tracklog.schemas").joinpath("avro").iterdir())) > 0)
"""
WRONG = """
from tracklog.schemas.topics import Topics

reveal_type(Topics("mine").events)
count: int = Topics("mine").events
Topics(prefix=3)
"""


@dataclass(frozen=True)
class Installed:
    python: Path
    folder: Path


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in an environment of its own; what it needs is borrowed from ours, to save a minute of downloads."""
    folder = tmp_path_factory.mktemp("client")
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", built.wheel, cwd=folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "env" / "lib" / version / "site-packages"
    # A plain path line: Python does not read the .pth files of that folder, so our own editable install stays out.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installed(python, folder)


def test_client_code_runs_against_the_installed_wheel(installed: Installed) -> None:
    (installed.folder / "client.py").write_text(CLIENT)

    answer = run(installed.python, "client.py", cwd=installed.folder)
    where = run(installed.python, "-c", "import tracklog.schemas.topics as t; print(t.__file__)", cwd=installed.folder)

    assert answer.split() == ["5", "5", "True"]
    assert where.startswith(str(installed.folder))


def test_a_type_checker_sees_types_in_client_code(installed: Installed) -> None:
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", installed.python, "--config-file=")
    (installed.folder / "client.py").write_text(CLIENT)
    (installed.folder / "wrong.py").write_text(f"{WRONG}\n")

    assert "Success" in run(*mypy, "client.py", cwd=installed.folder)
    with pytest.raises(AssertionError) as caught:
        run(*mypy, "wrong.py", cwd=installed.folder)

    assert 'Revealed type is "str"' in str(caught.value).replace("builtins.", "")
    assert "[assignment]" in str(caught.value)
    assert "[arg-type]" in str(caught.value)


def test_the_command_is_installed_and_starts(installed: Installed) -> None:
    command = installed.python.parent / "tracklog"

    assert "Usage" in run(command, "--help", cwd=installed.folder)
