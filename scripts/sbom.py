"""`python -m scripts.sbom`: what the environment of this interpreter is made of, as CycloneDX: build/sbom.cdx.json."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD: Final = ROOT / "build"
BOUND_S: Final = 120.0


def write(target: Path) -> None:
    """Every package with version, licence and what it needs. Raises CalledProcessError, TimeoutExpired."""
    target.parent.mkdir(parents=True, exist_ok=True)
    options = ("--output-reproducible", "--no-validate", "--pyproject", str(ROOT / "pyproject.toml"))
    command = [sys.executable, "-m", "cyclonedx_py", "environment", *options, "-o", str(target), sys.executable]
    subprocess.run(command, check=True, timeout=BOUND_S, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    write(BUILD / "sbom.cdx.json")
    print(BUILD / "sbom.cdx.json")
