"""A generated page: written, or with `--check` only compared."""

from __future__ import annotations

import sys
from pathlib import Path


def write_or_check(page: Path, text: str) -> int:
    """The exit code: 1 when `--check` was given and the page is out of date."""
    if "--check" in sys.argv[1:]:
        current = page.read_text(encoding="utf-8") if page.exists() else ""
        print(f"{page.name}: {'up to date' if current == text else 'out of date; run make docs'}")
        return int(current != text)
    page.write_text(text, encoding="utf-8")
    print(f"{page.name}: {len(text.splitlines())} lines written")
    return 0
