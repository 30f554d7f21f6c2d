"""The 125 recorded runs that come with the package: all read, all planned, nothing lost."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.importing import events_of_plan, recorded_objects
from tracklog.infra.blobs import BlobStore, open_blobs
from tracklog.producers.data import SHIPPED_RUNS, shipped_runs
from tracklog.producers.importers.rebuild import rebuild_record
from tracklog.producers.importers.run import Run
from tracklog.schemas.codec import Event
from tracklog.schemas.events import TaskStarted, ToolIntent
from tracklog.schemas.fold import fold
from tracklog.schemas.head import Verdict
from tracklog.schemas.state import State
from tracklog.schemas.values import Place

ROOT = Path(__file__).resolve().parents[3]
PLAN_DIGEST = "from tests.unit.producers.test_import_shipped import digest_of_some; print(digest_of_some())"


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [run for run in shipped_runs() if isinstance(run, Run)]


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> BlobStore:
    return open_blobs(str(tmp_path_factory.mktemp("blobs")))


@pytest.fixture(scope="module")
def histories(runs: list[Run], blobs: BlobStore) -> list[tuple[Run, list[Event]]]:
    return [(run, events_of_plan(run, blobs)) for run in runs]


def test_every_shipped_run_is_read_under_an_id_of_its_own(runs: list[Run]) -> None:
    assert len(runs) == SHIPPED_RUNS == len({run.trajectory_id for run in runs}) == len({r.source for r in runs})
    assert {run.labels["dataset"] for run in runs} == {"airline", "swe-agent"}
    assert "airline-17-3" in {run.trajectory_id for run in runs}


def test_events_of_every_shipped_run_fold_to_a_regular_end(histories: list[tuple[Run, list[Event]]]) -> None:
    for run, events in histories:
        state = State(run.trajectory_id)
        for event in events:
            state, judgement = fold(state, event)
            assert judgement.verdict is Verdict.ACCEPTED, f"{run.trajectory_id}: {event.name}"
        assert (state.irregular, state.faults, state.unknown, state.calls) == (0, 0, 0, {}), run.trajectory_id
        assert state.status == "completed"
        assert state.turn == state.spent.model_calls > 0


def test_the_record_of_every_shipped_run_is_rebuilt_from_its_events(
    histories: list[tuple[Run, list[Event]]], blobs: BlobStore
) -> None:
    for (run, events), record in zip(histories, recorded_objects(), strict=True):
        assert rebuild_record(events, blobs) == record, run.trajectory_id


def test_a_system_prompt_shared_by_all_airline_runs_is_stored_once(
    histories: list[tuple[Run, list[Event]]], blobs: BlobStore
) -> None:
    started = [e.body for _, events in histories for e in events if isinstance(e.body, TaskStarted)]
    prompts = [body.prompt_template.hash for body in started if body.prompt_template is not None]
    assert len(prompts) == SHIPPED_RUNS
    assert prompts.count(prompts[0]) == 120
    assert len([path for path in Path(blobs.url).rglob("*") if path.is_file()]) == len(set(prompts)) <= 6


def test_every_recorded_call_is_nobodys_to_run(histories: list[tuple[Run, list[Event]]]) -> None:
    intents = [e.body for _, events in histories for e in events if isinstance(e.body, ToolIntent)]
    assert len(intents) == 856
    assert {intent.place for intent in intents} == {Place.RECORDED}


def digest_of_some() -> str:
    """Over the event bytes of a few runs of each form."""
    runs = [run for run in shipped_runs() if isinstance(run, Run)]
    with tempfile.TemporaryDirectory() as folder:
        hashes = [event.hash for run in runs[::20] for event in events_of_plan(run, open_blobs(folder))]
    return hashlib.sha256(b"".join(hashes)).hexdigest()


def test_plans_are_the_same_bytes_in_every_process() -> None:
    path = os.pathsep.join([*(str(ROOT / role) for role in ("schemas", "infra", "producers")), str(ROOT)])
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
    command = [sys.executable, "-c", PLAN_DIGEST]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == digest_of_some()
