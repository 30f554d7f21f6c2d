"""Kafka's jars, fetched once by Maven into a folder named by the hash of the pom that lists them."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Final

from tracklog.infra.stack.file_lock import file_lock
from tracklog.infra.stack.maven import FETCH_TIMEOUT_S, find_maven, run_maven

POM: Final = Path(__file__).with_name("pom.xml")


def libs_path(cache: Path) -> Path:
    """Where the jars of this version's pom live, or will."""
    return cache / hashlib.sha256(POM.read_bytes()).hexdigest()[:16]


def fetch_libs(cache: Path) -> Path:
    """The folder with Kafka's jars; fetched when it is not there yet (about 55 MB, half a minute).

    Safe when two processes ask at once: one fetches, the other waits. The folder appears complete or not at
    all. Raises StackError when Maven is missing or the download fails.
    """
    libs = libs_path(cache)
    if libs.is_dir():
        return libs
    find_maven()
    with file_lock(cache / ".lock", timeout_s=FETCH_TIMEOUT_S):
        if not libs.is_dir():
            partial = cache / ".partial"
            shutil.rmtree(partial, ignore_errors=True)
            run_maven(
                *("-f", str(POM), "dependency:copy-dependencies", "-DincludeScope=runtime"),
                f"-DoutputDirectory={partial.absolute()}",
            )
            partial.rename(libs)
    return libs
