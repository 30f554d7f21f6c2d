"""`python -m scripts.audit`: known weaknesses of what constraints.txt pins, by pip-audit, into build/audit.json.

A report: it fails nothing. Where the service of weaknesses (osv.dev) cannot be reached, it says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from scripts.sbom import BUILD, ROOT

BOUND_S: Final = 300.0
ANSWER_S: Final = 15


class Report(NamedTuple):
    """`weak` by package and version: the ids of what is known. `asked` counts packages; `failure`: why nobody was."""

    asked: int
    weak: dict[str, list[str]]
    failure: str = ""

    def __str__(self) -> str:
        if self.failure:
            return f"nothing is known of weaknesses: the service could not be asked ({self.failure})"
        lines = [f"{package}: {', '.join(ids)}" for package, ids in self.weak.items()]
        return "\n".join([*lines, f"{len(self.weak)} of {self.asked} packages have known weaknesses"])


def report(requirements: Path, *options: str) -> Report:
    """`options` are pip-audit's own."""
    fixed = ("--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json", "--timeout", str(ANSWER_S))
    command = [sys.executable, "-m", "pip_audit", "-r", str(requirements), *fixed, "-s", "osv", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)
        return _read(json.loads(done.stdout)["dependencies"])
    except subprocess.TimeoutExpired:
        return Report(0, {}, f"no answer within {BOUND_S:g} s")
    except ValueError:  # it said nothing that could be read
        return Report(0, {}, done.stderr.strip().splitlines()[-1][:200] if done.stderr.strip() else "it said nothing")


def _read(packages: Sequence[dict[str, Any]]) -> Report:
    weak = {
        f"{one['name']} {one['version']}": [found["id"] for found in one["vulns"]]
        for one in packages
        if one.get("vulns")
    }
    skipped = [one for one in packages if "skip_reason" in one]
    if packages and len(skipped) == len(packages):
        return Report(0, {}, str(skipped[0]["skip_reason"]))
    return Report(len(packages) - len(skipped), weak)


def main() -> int:
    found = report(ROOT / "constraints.txt", *sys.argv[1:])
    BUILD.mkdir(exist_ok=True)
    (BUILD / "audit.json").write_text(json.dumps(found._asdict(), indent=1) + "\n", encoding="utf-8")
    print(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
