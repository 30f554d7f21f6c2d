"""Bytes written by any version of Tracklog are read by this one, and mean what they meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.golden import FINGERPRINTS, FOLDER, plain
from tracklog.schemas import catalog
from tracklog.schemas.catalog import KIND_OF, Kind
from tracklog.schemas.codec import decode_control, decode_event, decode_inbox, decode_ledger

FILES = sorted(file for file in FOLDER.glob("*.json") if file != FINGERPRINTS)
DECODE = {
    Kind.EVENTS: decode_event,
    Kind.INBOX: decode_inbox,
    Kind.LEDGER: decode_ledger,
    Kind.CONTROLS: decode_control,
}


def test_every_version_of_every_type_has_golden_bytes() -> None:
    versions = {f"{s.name}.{s.version}.json" for name in KIND_OF for s in catalog.versions(name)}

    assert {file.name for file in FILES} == versions, "run scripts/golden.py"


@pytest.mark.parametrize("case", ["bare", "full"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_golden_bytes_are_read_as_they_were_written(file: Path, case: str) -> None:
    name = file.name.split(".")[0]
    golden = json.loads(file.read_text(encoding="utf-8"))[case]
    headers = [(key, bytes.fromhex(value)) for key, value in golden["headers"].items()]

    record: Any = DECODE[KIND_OF[name]](golden["key"].encode(), bytes.fromhex(golden["value"]), headers)

    assert (record.name, record.problem, record.hash.hex()) == (name, "", golden["hash"])
    assert _still_there(golden["body"], plain(record.body)) == golden["body"]


def _still_there(before: Any, now: Any) -> Any:
    """What is read now, without the fields that later versions have added."""
    if isinstance(before, dict) and isinstance(now, dict):
        return {key: _still_there(before[key], now[key]) for key in before if key in now}
    return now
