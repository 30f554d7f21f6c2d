"""Writes the .avsc file of every type that has none yet; never changes one that exists.

python scripts/schemas.py              first versions of new types
python scripts/schemas.py NAME         the next version of NAME, from its model as it is now
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tracklog.schemas.avsc import record_schema
from tracklog.schemas.catalog import BODIES, ENVELOPES, KIND_OF

ROOT = Path(__file__).parent.parent / "schemas" / "tracklog" / "schemas" / "avro"


def write(name: str, version: int) -> None:
    kind = KIND_OF[name]
    file = ROOT / kind.value / f"{name}.{version}.avsc"
    if file.exists():
        return
    schema = record_schema(name, BODIES[kind][name], ENVELOPES[kind])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(schema, indent=2) + "\n")
    print(f"wrote {file.relative_to(ROOT)}")


def next_version(name: str) -> int:
    return 1 + max(int(f.name.split(".")[1]) for f in (ROOT / KIND_OF[name].value).glob(f"{name}.*.avsc"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(sys.argv[1], next_version(sys.argv[1]))
    else:
        for each in KIND_OF:
            write(each, 1)
