"""The crash matrix: an agent's process is killed, or frozen and overtaken, at every point x effect class.

A case is a trajectory of its own; what became of it is judged from the log and from the ledger service, which counts
effects. The rules of DESIGN §8, for whatever happened to the process:

    readonly     every call has its result
    idempotent   every call one effect, with its result
    probe        an effect where the result says so, none where it says expired; never two
    opaque       one effect with its result; none where it says expired, as whoever had won the call and found its own
                 deadline past says (brokers were away for so long); or none or one, and a person is asked; never two
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.importing import accepted_events
from tests.support.ledger import all_effects
from tests.support.matrix_worker import TURNS, Job, calls_of, effect_of
from tests.support.points import POINTS
from tests.support.writing import read_accepted
from tests.support.zygote import Zygote, zygote
from tracklog.infra.log.port import Log
from tracklog.schemas.codec import Event
from tracklog.schemas.events import Escalated, ModelReplied, OwnershipClaimed, TaskEnded, ToolResult
from tracklog.schemas.values import ResultStatus

ROOT = Path(__file__).resolve().parents[2]
CLASSES = ("readonly", "idempotent", "probe", "opaque")
WORKER = "tests.support.matrix_worker"
AT_ONCE = 2
TIMEOUT_S = 90
PAUSE_S_MAX = 0.004
"""How long after a point the kill comes at most: about what a report and a read-back take."""


@dataclass(frozen=True)
class Case:
    trajectory_id: str
    point: str
    occurrence: int
    pause_s: float
    then: str | None = None

    @property
    def effect(self) -> str:
        return effect_of(self.trajectory_id)


def cases(seed: int, points: Sequence[str] = POINTS, classes: Sequence[str] = CLASSES) -> list[Case]:
    """One case of each class at each point; the seed chooses in which turn, and how long after it."""
    drawn = random.Random(seed)
    return [
        Case(
            f"{effect}.{seed}.{point}",
            point,
            1 if point.startswith("TaskEnded") else drawn.randint(1, TURNS),
            drawn.random() * PAUSE_S_MAX,
        )
        for point in points
        for effect in classes
    ]


def start(job: Job) -> subprocess.Popen[str]:
    roles = ("schemas", "infra", "producers")
    path = os.pathsep.join([*(str(ROOT / role) for role in roles), str(ROOT)])
    command = [sys.executable, "-m", WORKER, job.argument()]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=pipe, stderr=pipe, text=True)


def kill_all(job: Job, cases: Sequence[Case]) -> None:
    """Runs the agent of each case until it kills itself, AT_ONCE at a time, in forks of processes that have imported
    everything."""
    idle: SimpleQueue[Zygote] = SimpleQueue()

    def kill(case: Case) -> None:
        made = idle.get()
        try:
            _kill(made, replace(job, trajectories=(case.trajectory_id,), **_at(case)), case)
        finally:
            idle.put(made)

    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in range(AT_ONCE):
            idle.put(stack.enter_context(zygote((WORKER,))))
        list(pool.map(kill, cases))


def _kill(made: Zygote, job: Job, case: Case) -> None:
    with TemporaryDirectory() as folder:
        out = Path(folder) / "ended"
        pid = made.start(WORKER, job.argument(), {}, out)
        late = threading.Timer(TIMEOUT_S, lambda: os.kill(pid, signal.SIGTERM))
        late.start()
        status = made.wait()
        late.cancel()
        assert status == -signal.SIGKILL, f"{case} was not killed: {status} {out.read_text() if out.exists() else ''}"


def resumed(job: Job, trajectory_ids: Iterable[str]) -> dict[str, str]:
    """What became of the trajectories in a process that nothing happens to."""
    with started(replace(job, trajectories=tuple(trajectory_ids))) as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, err
        return dict(json.loads(out))


@contextmanager
def frozen(job: Job, case: Case) -> Iterator[subprocess.Popen[str]]:
    """The case's agent, stopped at its point; it wakes and comes to its end when the block is left."""
    asked = replace(job, trajectories=(case.trajectory_id,), signal=int(signal.SIGSTOP), **_at(case))
    with started(asked) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"{case} was not stopped"
        yield process
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=TIMEOUT_S)


@contextmanager
def started(job: Job) -> Iterator[subprocess.Popen[str]]:
    process = start(job)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=TIMEOUT_S)


def _at(case: Case) -> dict[str, Any]:
    return {"point": case.point, "occurrence": case.occurrence, "pause_s": case.pause_s}


def judge(events: Sequence[Event], case: Case, ended: str, made: dict[str, int], *, woken: bool = False) -> list[str]:
    """What is wrong with a case that came to its end; [] for nothing.

    `woken`: its process was frozen for longer than the grace and woken afterwards. Frozen between its last look at
    the deadline and the send it then sends, which nobody but the tool can refuse (DESIGN §8): the effect of a probed
    call may then be there although its result says expired. It is still never there twice.
    """
    bodies = [event.body for event in events]
    results = {body.call_id: body for body in bodies if isinstance(body, ToolResult)}
    escalated = {body.call_id for body in bodies if isinstance(body, Escalated)}
    wrong = []
    for call_id in calls_of(case.trajectory_id):
        effects, result = made.get(call_id, 0), results.get(call_id)
        late = woken and case.point == "effect.start"
        if not _right(case.effect, effects, result, call_id in escalated, late=late):
            wrong.append(f"{call_id}: {effects} effects, result {result}, escalated {call_id in escalated}")
    over, asked = ended == "done", escalated - results.keys()
    if over != (not asked) or (not over and (ended != "PersonNeeded" or case.effect != "opaque")):
        wrong.append(f"ended with {ended}, a person is asked about {asked}")
    if over and len([body for body in bodies if isinstance(body, TaskEnded)]) != 1:
        wrong.append("there is not one end")
    if over and len([body for body in bodies if isinstance(body, ModelReplied)]) != TURNS + 1:
        wrong.append("a reply is recorded twice, or not at all")
    return [f"{case.trajectory_id} ({case.point}, {case.occurrence}): {one}" for one in wrong]


def standing(events: Iterable[Event]) -> str | None:
    """How a run has come to its end so far: "done", or "PersonNeeded" about a call; None for one that goes on."""
    asked: set[str] = set()
    for event in events:
        match event.body:
            case TaskEnded():
                return "done"
            case Escalated(call_id=call_id):
                asked.add(call_id)
            case ToolResult(call_id=call_id):
                asked.discard(call_id)
    return "PersonNeeded" if asked else None


def _right(effect: str, effects: int, result: ToolResult | None, escalated: bool, *, late: bool) -> bool:
    if result is None:  # the call a person was asked about, or one that comes after it
        return effect == "opaque" and effects <= escalated
    if effect == "readonly":
        return result.status is ResultStatus.OK
    if effect == "probe" and result.status is ResultStatus.EXPIRED:
        return effects <= late
    if effect == "opaque" and result.status is ResultStatus.EXPIRED:
        return effects == 0
    return (result.status, effects) == (ResultStatus.OK, 1)


def judge_all(log: Log, job: Job, done: Sequence[Case], ended: dict[str, str]) -> list[str]:
    made, events = all_effects(job.ledger_url), accepted_events(log, job.prefix)
    return [
        wrong for case in done for wrong in judge(events[case.trajectory_id], case, ended[case.trajectory_id], made)
    ]


def overtaken(log: Log, job: Job, case: Case) -> list[str]:
    """What is wrong after another process finished the work of a frozen one, which then woke.

    One that had ended its task before it was frozen is overtaken by nobody, and may still let go of it.
    """
    with frozen(job, case):
        ended = resumed(job, [case.trajectory_id])
        before = read_accepted(log, case.trajectory_id, prefix=job.prefix)
    after = read_accepted(log, case.trajectory_id, prefix=job.prefix)
    made = all_effects(job.ledger_url)
    wrong = judge(after, case, ended[case.trajectory_id], made, woken=True)
    claims = [event for event in before if isinstance(event.body, OwnershipClaimed)]
    stale = len(claims) > 1 and before != after
    return [*wrong, f"{case.trajectory_id}: stale events were accepted"] if stale else wrong
