"""The page of last results: one section for each command, which replaces its own and leaves the others."""

from __future__ import annotations

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).with_name("RESULTS.md")
_TITLE: Final = "# Measured\n"


def keep(command: str, text: str) -> None:
    """Puts the text under the command's heading, with date and machine."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    when = datetime.now(UTC).date().isoformat()
    section = f"## `{command}`\n\n{when}, on {machine}; broker, store and program on the same machine.\n\n{text}\n"
    page = PAGE.read_text() if PAGE.exists() else _TITLE
    sections = [one for one in re.split(r"(?m)^(?=## )", page)[1:] if not one.startswith(f"## `{command}`\n")]
    PAGE.write_text("\n".join([_TITLE, *sorted(one.rstrip() + "\n" for one in [*sections, section])]))
