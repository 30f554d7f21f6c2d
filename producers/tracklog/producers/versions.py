"""By which versions of model, prompt, tools and code a trajectory is worked on, and what a change of them means.

    pin      the recorded prompt and tool schemas go on being shown to the recorded model; nothing is written
    cross    what is recorded is answered as it was; then `DriftCrossed`, and from there on the new ones hold
    refuse   DriftRefused

The task and the agent's name are no versions: with another one of these it is another trajectory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import orjson

from tracklog.schemas import events as ev
from tracklog.schemas.codec import Event
from tracklog.schemas.lifecycle import EXT_CODE
from tracklog.schemas.values import BlobRef

__all__ = ["Drift", "Versions"]

EXT_SAMPLING: Final = "sampling"
"""In `ext` of DriftCrossed: the new sampling as JSON, when it is another one."""


class Drift(StrEnum):
    """What to do when an unfinished trajectory is opened by other versions than it was left with."""

    PIN = "pin"
    CROSS = "cross"
    REFUSE = "refuse"


class Versions(NamedTuple):
    """`prompt` and `tools` are hashes of blobs, None for none."""

    model: str
    prompt: bytes | None
    tools: bytes | None
    code: str
    sampling: Mapping[str, str]

    @staticmethod
    def started(body: ev.TaskStarted) -> Versions:
        prompt, tools = _hash(body.prompt_template), _hash(body.tool_schemas)
        return Versions(body.model, prompt, tools, body.code_version, dict(body.sampling))

    @staticmethod
    def recorded(events: Iterable[Event]) -> Versions | None:
        """Those that hold at the end of these events, None before a start."""
        found: Versions | None = None
        for event in events:
            if isinstance(event.body, ev.TaskStarted):
                found = Versions.started(event.body)
            elif isinstance(event.body, ev.DriftCrossed) and found is not None:
                found = found.crossed(event.body, event.envelope.ext)
        return found

    def crossed(self, body: ev.DriftCrossed, ext: Mapping[str, str]) -> Versions:
        """These after a crossing that is recorded."""
        sampling = orjson.loads(ext[EXT_SAMPLING]) if EXT_SAMPLING in ext else self.sampling
        return Versions(body.new_model, body.new_prompt, body.new_tools, ext.get(EXT_CODE, self.code), sampling)

    def crossing(self, new: Versions) -> tuple[ev.DriftCrossed, dict[str, str]]:
        """The event that goes from these to the new ones, and its ext."""
        body = ev.DriftCrossed(
            old_model=self.model,
            new_model=new.model,
            old_prompt=self.prompt,
            new_prompt=new.prompt,
            old_tools=self.tools,
            new_tools=new.tools,
        )
        ext = {EXT_CODE: new.code} if new.code != self.code else {}
        if new.sampling != self.sampling:
            ext[EXT_SAMPLING] = orjson.dumps(dict(new.sampling), option=orjson.OPT_SORT_KEYS).decode()
        return body, ext

    def changes(self, new: Versions) -> tuple[str, ...]:
        """The names of what differs."""
        return tuple(name for name in self._fields if getattr(self, name) != getattr(new, name))


def digest(text: str | None) -> bytes | None:
    """The hash under which a prompt or the schemas of tools are stored."""
    return None if text is None else hashlib.sha256(text.encode()).digest()


def _hash(ref: BlobRef | None) -> bytes | None:
    return None if ref is None else ref.hash
