"""The contexts of a session: what a model is about to see, each message of it in one event (see `assembly`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tracklog.producers.asked import Asked, asked_tools
from tracklog.producers.assembly import Assembly, Message, Reading, heard
from tracklog.producers.cursor import describe
from tracklog.producers.divergence import Divergence
from tracklog.producers.importers.shape import EXT_MESSAGE
from tracklog.producers.importers.transcript import seen_hash
from tracklog.producers.in_force import InForce
from tracklog.producers.notebook import Notebook
from tracklog.producers.record import JSON, TEXT, Record
from tracklog.producers.sameness import same_context, same_message
from tracklog.producers.timers import Timers
from tracklog.schemas import events as ev
from tracklog.schemas.context import ContextHash

__all__ = ["Contexts"]

Plain = tuple[Mapping[str, Any], ...]


class Contexts:
    """Of one session. `offered`: the hash of the tools that the last one was built with."""

    def __init__(self, record: Record, in_force: InForce, notebook: Notebook, timers: Timers) -> None:
        self.offered: bytes | None = None
        self._record = record
        self._in_force = in_force
        self._notebook = notebook
        self._timers = timers
        self._assembly = Assembly(record.cursor.places, notebook.journal)
        self._reading = Reading(record.redaction)
        self._hash = ContextHash()
        self._all_inherited = True

    def know(self, message: Message, seq: int) -> None:
        """This event holds the message."""
        self._assembly.know(seen_hash(message), seq)

    def recall(self, rows: Sequence[Any]) -> None:
        """Takes in the rows of a checkpoint."""
        self._all_inherited = False
        self._assembly.recall(rows)

    async def build(self, messages: Sequence[Message], asked: Asked | None = None) -> Plain:
        """Begins a turn with the tools of the setup, or with those that a program asks for."""
        plain, hashes = self._reading.read(messages)  # without secrets, as the model and the record have them
        with self._record.strand.ordered("a context"):
            await self._record.take()
            await self._notebook.at_context()
            await self._timers.fire()
            for shown in await self._in_force.newly():
                self._notebook.note("told")
                if shown.prompt is not None:
                    self.know({"role": "system", "content": shown.prompt}, shown.place)
            self.offered = self._in_force.shown.versions.tools
            if self._all_inherited and not self._record.cursor.inheriting:
                self._all_inherited = False
                self._assembly.restart()
            for position in self._assembly.new(hashes):
                seq = await self._hear(plain[position])
                self._assembly.know(hashes[position], seq)
            if asked is not None:
                self.offered = await self._asked_for(asked)
            rule = self._record.rule
            body = ev.ContextBuilt(
                edits=self._assembly.build(hashes),
                context_hash=self._hash.of(hashes, rule.version, self.offered),
                messages=len(plain),
                rule_version=rule.version,
            )
            self._record.turn += 1
            ext = None if asked is None else asked.ext
            await self._record.ordered(body, describe(body), check=same_context, ext=ext)
        return plain

    async def compact(self, first_turn: int, last_turn: int, summarize: Callable[[], Awaitable[str]]) -> Message:
        """A message that stands for those of these turns; what is about to be left out of sight is kept first."""
        asked = f"a summary of turns {first_turn} to {last_turn}"
        with self._record.strand.ordered(asked):
            found = await self._record.next_ordered(ev.Compacted, asked)
            if found is None:
                self._record.check_live(asked)
                await self._notebook.checkpoint()
                summary = await self._record.body(await summarize(), TEXT)
                body = ev.Compacted(
                    first_turn=first_turn,
                    last_turn=last_turn,
                    summary=summary,
                    rule_version=self._record.rule.version,
                )
                seq = await self._record.write(body)
            else:
                body, seq = found.body, found.seq
        if (body.first_turn, body.last_turn) != (first_turn, last_turn):
            raise self._record.cursor.broken(Divergence(self._record.turn, seq, describe(body), asked))
        message = {"role": "user", "content": await self._record.whole(body.summary)}
        self.know(message, seq)
        return message

    async def _asked_for(self, asked: Asked) -> bytes | None:
        """The tools of the context: those that were asked for when it was recorded, where that may be."""
        expected = self._record.cursor.next_open()
        if expected is not None and isinstance(expected.body, ev.ContextBuilt):
            self._in_force.check_asked(asked.changes(expected.ext), expected)
            return asked_tools(expected.ext, asked.tools)
        if asked.tools_json is not None:
            await self._record.put(asked.tools_json, JSON)
        return asked.tools

    async def _hear(self, message: Message) -> int:
        said = heard(message)
        body = ev.MessageReceived(
            peer=said.peer,
            role=said.role,
            message=await self._record.body(said.text, said.media_type, message=True),
        )
        ext = {EXT_MESSAGE: said.shape} if said.shape else {}
        return await self._record.ordered(body, describe(body), check=same_message, ext=ext)
