"""The agents of the airline runs by name, `tests.support.airline_agents:airline_0_0` for the run airline-0-0.

AIRLINE_URL is the service that their tools ask, AIRLINE_EFFECTS the classes of those that write (`effects_chosen`).
"""

from __future__ import annotations

import os
from functools import cache

from tests.support.airline import Recording, agent_of, effects_chosen, recordings
from tracklog.producers.turn import Agent


def spec_of(recording: Recording) -> str:
    return f"{__name__}:{recording.id.replace('-', '_')}"


@cache
def _by_name() -> dict[str, Recording]:
    return {one.id.replace("-", "_"): one for one in recordings()}


def __getattr__(name: str) -> Agent:
    recording = _by_name().get(name)
    if recording is None:
        raise AttributeError(name)
    return agent_of(recording, os.environ["AIRLINE_URL"], effects_chosen(os.environ["AIRLINE_EFFECTS"]))
