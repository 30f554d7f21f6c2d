"""A folder of its own for what the peers need, so that nothing of it comes into Tracklog's dependencies."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

HOME: Final = Path(__file__).resolve().parents[2] / ".tracklog" / "peers"
PYTHON: Final = HOME / "venv" / "bin" / "python"
RESTATE_SERVER: Final = HOME / "npm" / "node_modules" / ".bin" / "restate-server"
INSTALL_S_MAX: Final = 900.0


def install_python(*names: str) -> str:
    """Empty when these distributions are there, else why not."""
    if not PYTHON.exists():
        HOME.mkdir(parents=True, exist_ok=True)
        why = _ran(sys.executable, "-m", "venv", str(HOME / "venv"))
        if why:
            return why
    if all(version(name) for name in names):
        return ""
    return _ran(str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *names)


def install_restate_server() -> str:
    """Empty when it is there, else why not."""
    if RESTATE_SERVER.exists():
        return ""
    if shutil.which("npm") is None:
        return "npm is not there"
    silent = ("--silent", "--no-fund", "--no-audit")
    return _ran("npm", "install", *silent, "--prefix", str(HOME / "npm"), "@restatedev/restate-server")


def version(name: str) -> str:
    """Of a distribution in the folder; empty when it is not there."""
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    found = subprocess.run([str(PYTHON), "-c", code], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""


def _ran(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    lines = (done.stderr or done.stdout).strip().splitlines() or ["it says nothing"]
    return "" if done.returncode == 0 else f"{' '.join(command[:3])}: {lines[-1]}"
