"""Agents named on the command line: found, or refused with what is wrong and where."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tracklog.producers.agents import load_agent
from tracklog.schemas.errors import InputError

MODULE = """
from tracklog.producers.turn import Agent

agent = Agent("clerk", None)
number = 3


def made():
    return Agent("made", None)


def wanting(what):
    return Agent(what, None)


def failing():
    raise RuntimeError("no key")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("clerk_agents", "clerk_broken", "clerk_wants"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "clerk_agents.py").write_text(MODULE)
    (tmp_path / "clerk_broken.py").write_text("x = 1\nboom = 1 / 0\n")
    (tmp_path / "clerk_wants.py").write_text("import there_is_no_such_thing\n")
    return tmp_path


@pytest.mark.parametrize(("spec", "name"), [("clerk_agents:agent", "clerk"), ("clerk_agents:made", "made")])
def test_an_agent_of_the_current_directory_is_found_or_made(here: Path, spec: str, name: str) -> None:
    assert load_agent(spec).name == name


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("clerk_agents", "names no agent"),
        ("clerk_agents:", "names no agent"),
        ("there/is:agent", "names no agent"),
        ("clerk_nowhere:agent", "there is no module 'clerk_nowhere'"),
        ("clerk_broken:agent", "fails to import: ZeroDivisionError: division by zero (.*clerk_broken.py:2)"),
        ("clerk_wants:agent", "fails to import: ModuleNotFoundError: .*there_is_no_such_thing.*clerk_wants.py:1"),
        ("clerk_agents:nobody", "has no 'nobody'"),
        ("clerk_agents:number", "is a int, not an Agent"),
        ("clerk_agents:wanting", "cannot be called without arguments"),
        ("clerk_agents:failing", "fails: RuntimeError: no key (.*clerk_agents.py:17)"),
    ],
)
def test_what_is_no_agent_is_refused_with_what_is_wrong_and_where(here: Path, spec: str, says: str) -> None:
    with pytest.raises(InputError, match=says.replace("(", r"\(").replace(")", r"\)")):
        load_agent(spec)
