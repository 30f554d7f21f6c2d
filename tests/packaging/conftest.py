"""The distribution, built once a session from a copy of the tree, as a person would build it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, tracked

COMMAND_TIMEOUT_S = 60


def run(*command: str | Path, cwd: Path) -> str:
    """Runs a command; its whole output is the message when it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@dataclass(frozen=True)
class Built:
    wheel: Path
    sdist: Path
    wheel_of_sdist: Path

    def names(self) -> set[str]:
        """Files in the wheel but its metadata."""
        return _names(self.wheel)

    def names_by_way_of_sdist(self) -> set[str]:
        return _names(self.wheel_of_sdist)

    def metadata(self, name: str) -> str:
        with zipfile.ZipFile(self.wheel) as file:
            (path,) = (path for path in file.namelist() if path.endswith(f".dist-info/{name}"))
            return file.read(path).decode()


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as file:
        return {name for name in file.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Wheel and sdist of the tree, and the wheel that the sdist gives."""
    base = tmp_path_factory.mktemp("dist")
    tree, out, again = base / "tree", base / "out", base / "again"
    for path in tracked():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, tree / path)
    run(sys.executable, "-m", "hatchling", "build", "-d", out, cwd=tree)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        file.extractall(base / "unpacked", filter="data")
    (unpacked,) = (base / "unpacked").iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", again, cwd=unpacked)
    (wheel_of_sdist,) = again.glob("*.whl")
    return Built(wheel, sdist, wheel_of_sdist)
