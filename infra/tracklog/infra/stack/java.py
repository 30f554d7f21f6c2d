"""Finding a Java runtime that is new enough."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tracklog.schemas.errors import StackError

JVM_FOLDERS: Final = (Path("/usr/lib/jvm"), Path("/Library/Java/JavaVirtualMachines"), Path("/opt/java"))
VERSION_TIMEOUT_S: Final = 20.0


def find_java(major_min: int) -> Path:
    """The first `java` of at least this major version: on the PATH, else in the usual folders.

    Raises StackError that says what was found and what to install.
    """
    seen: dict[Path, int | None] = {}
    for candidate in _candidates():
        java = candidate.resolve()
        if java in seen:
            continue
        seen[java] = major = java_major(java)
        if major is not None and major >= major_min:
            return java
    found = ", ".join(f"{path} is Java {major}" for path, major in seen.items()) or "no java was found"
    raise StackError(
        f"Java {major_min} or newer is needed: {found}",
        hint=f"install a Java runtime {major_min}+, e.g. Debian's package default-jre-headless",
    )


def _candidates() -> Iterator[Path]:
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path)
    for folder in JVM_FOLDERS:
        yield from sorted(folder.glob("*/bin/java"))
        yield from sorted(folder.glob("*/Contents/Home/bin/java"))


def java_major(java: Path) -> int | None:
    """Major version of a `java` executable; None when it is not one."""
    try:
        text = java.parent.parent.joinpath("release").read_text()
    except OSError:
        text = _asked_version(java)
    match = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return None if match is None else int(match.group(1))


def _asked_version(java: Path) -> str:
    try:
        answer = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr
