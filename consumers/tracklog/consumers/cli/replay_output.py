"""Where replayed records go: the terminal, a file, another topic."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, Final, Protocol

from tracklog.consumers.cli.run import Run
from tracklog.consumers.cli.target_file import target_file
from tracklog.consumers.copying import TopicCopy
from tracklog.consumers.replay import Replayed
from tracklog.consumers.summary import one_line, summary
from tracklog.schemas.record_file import RecordFile
from tracklog.schemas.state import State, dump_state

LENGTH_BYTES: Final = 4


class Format(StrEnum):
    PRETTY = "pretty"
    JSONL = "jsonl"
    AVRO = "avro"
    RAW = "raw"


class Sink(Protocol):
    def put(self, one: Replayed) -> None: ...


class PrettySink:
    def __init__(self, run: Run) -> None:
        self._run = run

    def put(self, one: Replayed) -> None:
        place = f"{one.record.partition}:{one.record.offset}"
        when = clock_time(one.record.timestamp_ms)
        if one.event is None:
            self._run.out.text(f"{place:>10}  {when}  no event: {one_line(one.reason)}", style="yellow")
            return
        e = one.event.envelope
        line = f"{place:>10}  {when}  {e.trajectory_id}  #{e.seq:<4} {one.event.name:<17} {summary(one.event)}"
        self._run.out.text(line, style="" if one.event.known and not one.event.problem else "yellow")


class JsonSink:
    """One object a line."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def put(self, one: Replayed) -> None:
        self._file.write(json.dumps(one.as_map(), ensure_ascii=False).encode() + b"\n")


class RawSink:
    """Each value behind its length."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def put(self, one: Replayed) -> None:
        value = one.record.value or b""
        self._file.write(len(value).to_bytes(LENGTH_BYTES, "big") + value)


class AvroSink:
    """An Avro object container file of records."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = RecordFile(file)

    def put(self, one: Replayed) -> None:
        self._file.write(one.record)

    def close(self) -> None:
        self._file.close()


class TopicSink:
    """Only events are copied: bytes that are none stay where they are."""

    def __init__(self, copy: TopicCopy) -> None:
        self._copy = copy
        self.left_out = 0

    def put(self, one: Replayed) -> None:
        if one.event is None:
            self.left_out += 1
        else:
            self._copy.append(one.record)


@contextmanager
def opened_sink(
    run: Run, form: Format | None, path: Path | None, copy: TopicCopy | None, *, force: bool, at_once: bool
) -> Iterator[Sink]:
    """The sink asked for; at the end everything is where it should be, and that is said.

    `at_once`: a file gets each record as it comes.
    """
    if copy is not None:
        topic_sink = TopicSink(copy)
        yield topic_sink
        _tell_copied(run, copy.finish(), topic_sink.left_out)
    elif path is not None:
        with target_file(path, force=force, at_once=at_once) as file:
            yield from _file_sink(form or Format.JSONL, file)
        run.out.note(f"written to {path}")
    elif form is Format.PRETTY or (form is None and not run.as_json):
        yield PrettySink(run)
    else:
        yield from _file_sink(form or Format.JSONL, sys.stdout.buffer)


def _file_sink(form: Format, file: IO[bytes]) -> Iterator[Sink]:
    if form is Format.AVRO:
        sink = AvroSink(file)
        yield sink
        sink.close()
    else:
        yield RawSink(file) if form is Format.RAW else JsonSink(file)
    file.flush()


def _tell_copied(run: Run, copied: int, left_out: int) -> None:
    if run.as_json:
        run.out.json({"copied": copied, "left_out": left_out})
    else:
        run.out.text(f"{copied} records appended" + (f", {left_out} that are no events left out" if left_out else ""))


def tell_states(run: Run, states: Iterable[State]) -> int:
    """With --json one state a line, complete; else a table. How many they were."""
    if run.as_json:
        count = 0
        for state in states:
            run.out.json_line(json.loads(dump_state(state)))
            count += 1
        return count
    rows = [state_row(state) for state in states]
    columns = ("trajectory", "status", "turn", "event", "epoch", "open", "hash")
    run.out.table(columns, rows, right=("turn", "event", "epoch", "open"))
    return len(rows)


def state_row(state: State) -> tuple[str, ...]:
    head = state.head
    numbers = (str(state.turn), str(head.seq), str(head.epoch), str(len(state.open_intents)))
    return (state.trajectory_id, state.summary, *numbers, head.hash.hex()[:12])


def clock_time(timestamp_ms: int) -> str:
    """The append time, UTC, to the millisecond."""
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}"
