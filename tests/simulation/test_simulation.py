"""The whole of dispatch under one seed: what goes wrong anywhere, what must always be so, and that it would be seen."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from tests.simulation.many import all_ran
from tests.simulation.mutants import KILLERS, MUTANTS, WRITTEN
from tests.simulation.run import run
from tests.simulation.scenario import Fault, Scenario, Timed, Trigger
from tests.simulation.shrink import shown, shrink

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 1000
CALM = Scenario(seed=1, work=((("opaque",),),))
TRACES = "from tests.simulation.test_simulation import traced; print(traced())"


def traced() -> str:
    """What twelve seeds do, step by step."""
    lines = (line for seed in range(12) for line in run(Scenario.of(seed)).trace)
    return sha256("\n".join(lines).encode()).hexdigest()


def test_whatever_goes_wrong_each_call_comes_out_as_its_class_says() -> None:
    # given the work and the faults of a thousand seeds, when they are run
    wrong = [seed for batch in all_ran(0, SEEDS, os.cpu_count() or 1) for seed in batch.wrong]
    # then nothing is ever as it must not be
    assert not wrong, shown(*shrink(Scenario.of(wrong[0])))


@pytest.mark.parametrize("name", KILLERS)
def test_a_weakened_rule_is_found(name: str) -> None:
    # given one rule that is not kept
    with MUTANTS[name]():
        # when the seed that is known to find it is run, and others where the code has changed since
        found = run(Scenario.of(KILLERS[name])).violation or any(
            run(Scenario.of(seed)).violation for seed in range(SEEDS)
        )
    # then something is wrong
    assert found


def test_every_weakened_rule_has_its_killer() -> None:
    assert {*KILLERS, *WRITTEN} == set(MUTANTS)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_weakened_rule_is_found_by_what_was_written_for_it(name: str) -> None:
    # given work and faults in which nothing goes wrong
    assert not run(WRITTEN[name]).violation
    # when one rule is not kept
    with MUTANTS[name]():
        found = run(WRITTEN[name]).violation
    # then something is wrong
    assert found


def test_one_seed_does_the_same_in_every_process() -> None:
    # given two processes that hash differently, when they run the same seeds
    roots = [str(ROOT), *(str(ROOT / one) for one in ("schemas", "infra", "producers", "processors", "consumers"))]
    said = []
    for hash_seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(roots)}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", TRACES], env=environ, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    # then every step of them is the same
    assert said[0] == said[1]
    assert len(said[0].strip()) == 64


def test_a_seed_that_fails_is_shown_as_small_as_it_gets() -> None:
    # given a rule that is not kept, and much work and many faults of which none is needed to see it
    much = replace(
        CALM,
        work=(((("opaque", "sleep"), ("probe",))), (("readonly",),)),
        dispatchers=3,
        faults=(Timed(200, "t0", Fault("freeze", 3.0)),),
        triggers=(Trigger("Done", 3, 2, False, Fault("kill", 0.5)),),
        appends=((30, "slow"),),
        sends=((3, "late"),),
        cancels=((1, 30.0),),
        trims=20.0,
    )
    with MUTANTS["Done before the outcome [rule 5]"]():
        # when it is made smaller
        small, ended = shrink(much)
    # then one call is left of it and no fault, and it still fails in the same way
    assert small == replace(CALM, seed=1, work=small.work, dispatchers=1)
    assert [len(turn) for turns in small.work for turn in turns] == [1]
    assert ended.violation.startswith("Done of")
    assert ended.violation in shown(small, ended)
    assert len(ended.trace) < 20


def test_nobody_is_asked_about_a_call_without_an_effect() -> None:
    # given a readonly call of which its tool cannot say what became of it
    scenario = replace(CALM, work=((("readonly",),),), sends=((1, "unknown"), (2, "unknown")))
    # when it is run by two dispatchers
    ended = run(scenario)
    # then that is its result
    assert not ended.violation
    assert any("ToolResult" in line and "unknown" in line for line in ended.trace)


def test_a_call_of_which_only_a_person_can_know_stays_open_for_one() -> None:
    # given an opaque call whose dispatcher does not come back from the send
    scenario = replace(CALM, sends=((1, "lost"),), triggers=(Trigger("send", 1, 1, False, Fault("gone", 0.0)),))
    # when nobody settles it, and when somebody does
    left, settled = run(scenario), run(replace(scenario, person=True))
    # then it is asked about, after the grace; and only then has a result
    assert not left.violation
    assert not settled.violation
    asked = [float(line.split()[0]) for line in left.trace if "Escalated" in line]
    assert len(asked) == 1
    assert asked[0] > 30.0
    assert not any("ToolResult" in line for line in left.trace)
    assert any("ToolResult" in line for line in settled.trace)


def test_what_is_left_of_a_world_is_ended_without_a_coroutine_that_nobody_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a seed after whose end somebody waits who, when he is ended, waits again; and a rule that is broken while an
    # owner is about to open its session
    name, complained = "in the process a key is used after its life [X17-X19]", list[str]()
    monkeypatch.setattr(sys, "unraisablehook", lambda one: complained.append(f"{one.object}: {one.exc_value}"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        # when they are run, and nothing is left of them
        assert not run(Scenario.of(3)).violation
        with MUTANTS[name]():
            assert run(WRITTEN[name]).violation
        gc.collect()
    # then Python has nothing to say of it
    assert [str(one.message) for one in told] == []
    assert complained == []
