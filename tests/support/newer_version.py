"""Versions of Tracklog that are not there yet, made of this one: a type with one more field, a projection anew."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Final

from tests.support.chart_pods import ROLES, ROOT

__all__ = ["CHANGED", "newer"]

CHANGED: Final = "ToolResult"
SCHEMAS: Final = Path("schemas/tracklog/schemas")
FIELD: Final = {"name": "mood", "type": ["null", "string"], "default": None}


def newer(folder: Path, *, writes: bool) -> Path:
    """A tree with a newer schema version of CHANGED, which it reads, and writes only where that is said; and with a
    newer version of the trajectories' projection."""
    for role in ROLES:
        shutil.copytree(ROOT / role, folder / role, ignore=shutil.ignore_patterns("__pycache__", "data"))
    avro = folder / SCHEMAS / "avro" / "events"
    versions = [int(path.name.split(".")[1]) for path in avro.glob(f"{CHANGED}.*.avsc")]
    schema = json.loads((avro / f"{CHANGED}.{max(versions)}.avsc").read_text(encoding="utf-8"))
    schema["fields"].append(FIELD)
    (avro / f"{CHANGED}.{max(versions) + 1}.avsc").write_text(json.dumps(schema), encoding="utf-8")
    _edit(folder / SCHEMAS / "events.py", rf"(class {CHANGED}\(EventBody\):\n)", r"\1    mood: str | None = None\n")
    if not writes:
        _edit(folder / SCHEMAS / "codec.py", r"catalog\.newest\((type\(body\).__name__)\)", r"catalog.versions(\1)[0]")
    projection = folder / "processors" / "tracklog" / "processors" / "trajectories.py"
    _edit(projection, r"^VERSION: Final = (\d+)$", lambda found: f"VERSION: Final = {int(found[1]) + 1}")
    return folder


def _edit(path: Path, pattern: str, instead: object) -> None:
    text, count = re.subn(pattern, instead, path.read_text(encoding="utf-8"), flags=re.MULTILINE)  # type: ignore[call-overload]
    assert count >= 1, f"{path} is not what it was"
    path.write_text(text, encoding="utf-8")
