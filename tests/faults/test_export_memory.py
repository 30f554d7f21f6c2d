"""An exporter stays under 500 MB whatever is in the log: measured of real processes on a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.chains import Chain, Made, append_all
from tests.support.exporting import exporting_on
from tracklog.schemas import limits
from tracklog.schemas.events import ContextBuilt, EventBody, MessageReceived, ModelReplied
from tracklog.schemas.values import BlobRef, Body, ContextEdit, EditOp, Role

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(600)]

FINISH_S = 300.0
PEAK_MB_MAX = 500
AT_ONCE = 2_000


def largest() -> Iterator[Made]:
    """Bodies whose JSON is six times as large as they are."""
    text = "\x01" * (limits.EVENT_BYTES_MAX - 1024)
    yield from _same(MessageReceived(peer="user", role=Role.USER, message=Body.of(text)), 100)


def widest() -> Iterator[Made]:
    """As many parts as a record can have, and a blob to look for: it is decoded with all checks for that."""
    edits = (ContextEdit(op=EditOp.KEEP, count=1),) * (limits.EVENT_BYTES_MAX // 5)
    blob = BlobRef(hash=bytes(32), size_bytes=1, media_type="text/plain")
    yield from _same(
        ContextBuilt(edits=edits, retrieved=(blob,), context_hash=bytes(32), messages=0, rule_version="1"), 8
    )


def many_short() -> Iterator[Made]:
    """Each of a trajectory of its own, whose id is as long as ids may be."""
    for number in range(60_000):
        chain = Chain(f"{number:06}".ljust(limits.TRAJECTORY_ID_BYTES_MAX, "x"))
        yield chain.claim()


def many_tenants() -> Iterator[Made]:
    """Two files for each: before and after a model has served it."""
    for number in range(1_000):
        chain = Chain(f"run-{number}", tenant=f"tenant-{number}")
        yield chain.claim()
        yield chain.add(ModelReplied(reply=Body.of("yes"), model_served=f"model-{number % 7}"))


def no_events() -> Iterator[Made]:
    value = b"\xff" * (limits.EVENT_BYTES_MAX - 1024)
    yield from (Made(b"key", value, (("name", b"x" * 1024),), b"") for _ in range(100))


def _same(body: EventBody, count: int) -> Iterator[Made]:
    made = Chain("run-1").add(body)
    yield from (made for _ in range(count))


@pytest.mark.parametrize("records", [largest, widest, many_short, many_tenants, no_events])
def test_an_exporter_stays_under_500_mb(
    kafka_bootstrap: str, fresh_prefix: str, tmp_path: Path, records: Callable[[], Iterator[Made]]
) -> None:
    written = 0
    with exporting_on(f"kafka://{kafka_bootstrap}", fresh_prefix, tmp_path, cold={"blobs": "check"}) as world:
        held: list[Made] = []
        for record in records():
            held.append(record)
            if len(held) == AT_ONCE or len(record.value) > limits.BODY_INLINE_BYTES_MAX:
                written += len(append_all(world.log, world.topic, held))
                held.clear()
        written += len(append_all(world.log, world.topic, held))
        # as it is by default: large batches
        settings = world.settings.model_dump(mode="json", include={"prefix", "home", "topics", "cold"})

        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "benchmarks.exporting_process",
                json.dumps(settings | {"log": {"url": world.log.url}}),
            ],
            stdout=subprocess.PIPE,
            timeout=FINISH_S,
            check=True,
        )

        said = json.loads(done.stdout)
        assert said["events"] + len(world.undecodable()) == written
    assert said["peak_mb"] < PEAK_MB_MAX
