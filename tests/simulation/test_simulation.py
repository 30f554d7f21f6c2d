"""The whole of dispatch under one seed: what goes wrong anywhere, what must always be so, and that it would be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.run import run
from tests.simulation.scenario import Fault, Scenario
from tests.simulation.shrink import shown, shrink

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 100
"""Of those that are run each time; `make simulate` runs a thousand."""
SEEDS_SEARCHED = 1000
CALM = Scenario(
    seed=1, work=((("opaque",),),), dispatchers=2, faults=(), appends=(), sends=(), cancels=(), person=False
)
TRACES = "from tests.simulation.test_simulation import traced; print(traced())"


def traced() -> str:
    """What twelve seeds do, step by step."""
    lines = (line for seed in range(12) for line in run(Scenario.of(seed)).trace)
    return sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("first", range(0, SEEDS, 25))
def test_whatever_goes_wrong_each_call_comes_out_as_its_class_says(first: int) -> None:
    # given the work and the faults of 25 seeds, when they are run
    wrong = [seed for seed in range(first, first + 25) if run(Scenario.of(seed)).violation]
    # then nothing is ever as it must not be
    assert not wrong, shown(*shrink(Scenario.of(wrong[0])))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_weakened_rule_is_found(name: str) -> None:
    # given one rule that is not kept
    plant, killer = MUTANTS[name]
    # when the seed that is known to find it is run, and others where the code has changed since
    with plant():
        found = run(Scenario.of(killer)).violation or any(
            run(Scenario.of(seed)).violation for seed in range(SEEDS_SEARCHED)
        )
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
    # given a rule that is not kept, and a seed with much else in it that finds this
    plant, killer = MUTANTS["Done before the outcome [rule 5]"]
    with plant():
        # when it is made smaller
        small, ended = shrink(Scenario.of(killer))
    # then one call is left of it and no fault, and it still fails
    assert ended.violation
    assert small == replace(small, faults=(), appends=(), sends=(), cancels=())
    assert [len(turn) for turns in small.work for turn in turns] == [1]
    assert ended.violation in shown(small, ended)


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
    scenario = replace(CALM, sends=((1, "lost"),), faults=(Fault(60, "gone", "d0", 0.0),))
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
