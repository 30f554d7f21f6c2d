"""What holds where a session has come to in its record: model, prompt and tools, old or new (DESIGN §7).

A crossing that is recorded is passed when everything before it was given out; one that is due, when everything
recorded was. So a program that reads `session.prompt` gets the same text at the same place each time it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from tracklog.producers.cursor import Recorded, describe
from tracklog.producers.divergence import Divergence
from tracklog.producers.models import Model
from tracklog.producers.record import JSON, TEXT, Record
from tracklog.producers.setup import Setup
from tracklog.producers.versions import Drift, Versions, digest
from tracklog.schemas import events as ev
from tracklog.schemas.errors import DriftRefused, SessionMisused

__all__ = ["InForce", "check_drift", "versions_of"]

NOWHERE: Final = sys.maxsize
"""The place of a crossing that is not written yet."""
NAMES_IN_REPLAY: Final = ("model", "sampling", "prompt", "tools")
"""What a replay is strict about: other code with the same answers is what it is for."""


class Shown(NamedTuple):
    """What a model is shown beside the messages. `place` is that of the event which says so."""

    place: int
    versions: Versions
    prompt: str | None


def versions_of(setup: Setup) -> Versions:
    """Those that a session is opened with."""
    return Versions(
        model=setup.model.name if setup.model is not None else "",
        prompt=digest(setup.prompt),
        tools=digest(setup.tools.schemas_json()) if len(setup.tools) else None,
        code=setup.code_version,
        sampling=setup.sampled,
    )


def check_drift(trajectory_id: str, setup: Setup, recorded: Versions, intents: Iterable[ev.ToolIntent]) -> None:
    """Raises DriftRefused when the trajectory must not go on by these versions. `intents`: those without an outcome."""
    if setup.drift is None:
        _check_intents(trajectory_id, setup, intents)
    changes = recorded.changes(versions_of(setup))
    if not changes:
        return
    if setup.drift is Drift.REFUSE:
        raise DriftRefused(
            f"trajectory {trajectory_id!r} was left with another {', '.join(changes)}",
            hint="open it with what it was left with, or with drift pin or cross",
        )
    if setup.drift is Drift.PIN and "model" in changes and not hasattr(setup.model, "named"):
        raise DriftRefused(
            f"trajectory {trajectory_id!r} is pinned to model {recorded.model!r}, which is not to be had here",
            hint="open it with that model, or with drift cross",
        )


def _check_intents(trajectory_id: str, setup: Setup, intents: Iterable[ev.ToolIntent]) -> None:
    for intent in intents:
        tool = setup.tools.get(intent.tool)
        if tool is None or tool.version != intent.tool_version:
            raise DriftRefused(
                f"call {intent.call_id!r} of trajectory {trajectory_id!r} may have happened, and its tool "
                f"{intent.tool!r} is {'gone' if tool is None else 'another one'} now",
                hint="open it once with the tool as it was, or say what is to hold: drift pin or cross",
            )


class InForce:
    """Of one session; `open` before anything is asked of it. Strict, as in a replay: there is no drift."""

    def __init__(self, setup: Setup, record: Record, *, strict: bool) -> None:
        self._setup = setup
        self._record = record
        self._strict = strict
        self._own = versions_of(setup)
        self._line: list[Shown] = []
        self._at = 0
        self.told = 0
        """How many of the line `newly` has given."""
        self._due: Shown | None = None
        self._definitions: dict[bytes, tuple[Mapping[str, Any], ...]] = {}

    async def open(self, started: int) -> None:
        """Reads what is recorded. `started`: the place of the start. Raises Diverged, BlobMissing."""
        recorded = [(found.seq, versions) for found, versions in self._record.cursor.versions]
        for place, versions in recorded or [(started, self._own)]:
            self._line.append(Shown(place, versions, await self._prompt(versions.prompt)))
        last = self._line[-1].versions
        if self._setup.drift is Drift.PIN:
            return
        changes = last.changes(self._own)
        if self._strict:
            self._check_same(await self._said(last, changes))
        elif changes:
            await self.put()
            self._due = Shown(NOWHERE, self._own, self._setup.prompt)
            self._record.due = self._cross

    @property
    def shown(self) -> Shown:
        """What holds now."""
        expected = self._record.cursor.next_open()
        if expected is None and self._due is not None:
            return self._due
        while self._at + 1 < len(self._line) and (expected is None or self._line[self._at + 1].place < expected.seq):
            self._at += 1
        return self._line[self._at]

    @property
    def own_tools(self) -> bool:
        """Whether the tools that hold now are those that the session was opened with."""
        return self.shown.versions.tools == self._own.tools

    @property
    def model(self) -> Model:
        """Whom to ask. Raises SessionMisused when there is nobody."""
        model, name = self._setup.model, self.shown.versions.model
        if model is None:
            raise SessionMisused("this session has no model", hint="give model= when it is opened")
        if self._setup.drift is not Drift.PIN or model.name == name:
            return model
        pinned: Model = getattr(model, "named")(name)  # noqa: B009 - not every model can; check_drift has looked
        return pinned

    async def newly(self) -> Sequence[Shown]:
        """What has come into force since this was asked last; a crossing that is due is written first."""
        if self._record.cursor.done:
            await self._record.write_due()
        self.shown  # noqa: B018 - moves on to where the record is
        told, self.told = self.told, self._at + 1
        return self._line[told : self.told]

    async def definitions(self, tools: bytes | None) -> tuple[Mapping[str, Any], ...]:
        """The tools with these schemas, as a model is told of them."""
        if tools is None:
            return ()
        if tools == self._own.tools:
            return self._setup.tools.definitions
        if tools not in self._definitions:
            self._definitions[tools] = tuple(orjson.loads(await self._record.stored(tools)))
        return self._definitions[tools]

    def check_asked(self, changes: Sequence[str], recorded: Recorded[ev.EventBody]) -> None:
        """Whether a recorded context may be given to a program that asks for another model, tools or sampling now.

        Pinning is not for such: it is the program that shows them to its model. Raises DriftRefused, Diverged.
        """
        if not changes or (self._strict and self._setup.drift is Drift.PIN):
            return
        if self._strict:
            raise self._record.cursor.diverged(recorded, f"a context (another {', '.join(changes)})")
        if self._setup.drift in (Drift.PIN, Drift.REFUSE):
            raise DriftRefused(
                f"turn {recorded.turn} of trajectory {self._record.trajectory_id!r} was asked for with another "
                f"{', '.join(changes)}",
                hint="open it with the program as it was, or with drift cross",
            )

    async def _prompt(self, prompt: bytes | None) -> str | None:
        if prompt is None or prompt == self._own.prompt:
            return None if prompt is None else self._setup.prompt
        return await self._record.stored(prompt)

    async def put(self) -> None:
        """Stores the prompt and the tools that the session was opened with."""
        if self._setup.prompt is not None:
            await self._record.put(self._setup.prompt, TEXT)
        if self._own.tools is not None:
            await self._record.put(self._setup.tools.schemas_json(), JSON)

    async def _cross(self) -> None:
        assert self._due is not None
        due, self._due = self._due, None
        self._line.append(due)  # in force from here on, whatever runs beside this
        body, ext = self._line[-2].versions.crossing(due.versions)
        place = await self._record.pen.append(body, turn=self._record.turn, cause=None, ext=ext)
        self._line[-1] = due._replace(place=place)

    async def _said(self, last: Versions, changes: Iterable[str]) -> list[str]:
        """The changes that can be told: a recording may not say, and has tools in an order and a form of its own."""
        said = list(changes)
        if "model" in said and self._record.asking is not None and self._record.asking.of_model:
            said.remove("model")
        if not self._record.rule.partial:
            return said
        said = [name for name in said if getattr(last, name)]
        if "tools" in said and last.tools is not None:
            told = orjson.loads(await self._record.stored(last.tools))
            by_name = sorted(told, key=lambda one: str(one["function"]["name"]))
            if orjson.dumps(by_name, option=orjson.OPT_SORT_KEYS).decode() == self._setup.tools.schemas_json():
                said.remove("tools")
        return said

    def _check_same(self, changes: Iterable[str]) -> None:
        differ = [name for name in NAMES_IN_REPLAY if name in set(changes)]
        if differ and self._record.cursor.versions:
            found, _ = self._record.cursor.versions[-1]
            asked = f"the start of a task (another {', '.join(differ)})"
            raise self._record.cursor.broken(Divergence(found.turn, found.seq, describe(found.body), asked))
