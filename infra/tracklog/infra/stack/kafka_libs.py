"""Kafka's jars, fetched once by Maven into a folder named by the hash of the pom that lists them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tracklog.infra.stack.file_lock import file_lock
from tracklog.infra.stack.java import find_maven
from tracklog.schemas.errors import StackError

POM: Final = Path(__file__).with_name("pom.xml")
FETCH_TIMEOUT_S: Final = 900.0


def libs_path(cache: Path) -> Path:
    """Where the jars of this version's pom live, or will."""
    return cache / hashlib.sha256(POM.read_bytes()).hexdigest()[:16]


def fetch_libs(cache: Path) -> Path:
    """The folder with Kafka's jars; fetched when it is not there yet (about 55 MB, half a minute).

    Safe when two processes ask at once: one fetches, the other waits. The folder appears complete or not at
    all. Raises StackError when Maven or Java is missing, or the download fails.
    """
    libs = libs_path(cache)
    if libs.is_dir():
        return libs
    find_maven()
    with file_lock(cache / ".lock", timeout_s=FETCH_TIMEOUT_S):
        if not libs.is_dir():
            partial = cache / ".partial"
            shutil.rmtree(partial, ignore_errors=True)
            _copy_dependencies(partial)
            partial.rename(libs)
    return libs


def _copy_dependencies(target: Path) -> None:
    command = [
        *(str(find_maven()), "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"),
        *("-DincludeScope=runtime", f"-DoutputDirectory={target.absolute()}"),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise StackError(f"Maven did not fetch Kafka's jars within {FETCH_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0 or not any(target.glob("kafka_2.13-*.jar")):
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise StackError(
            f"Maven could not fetch Kafka's jars (exit {done.returncode}):\n{tail}",
            hint="check that a Maven repository is reachable, then try again",
        )
