"""`tracklog` from the sources: `python -m tests.support.command_line ...`"""

from __future__ import annotations

from tracklog.consumers.cli import main

if __name__ == "__main__":
    main()
