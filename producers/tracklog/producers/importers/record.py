"""One record of a file as a JSON object: reading it strictly, naming it, and keeping what is no message."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

import orjson
from pydantic import ValidationError

from tracklog.producers.importers.run import BadRun
from tracklog.producers.importers.transcript import Asked
from tracklog.schemas.errors import ImportSourceError
from tracklog.schemas.limits import LABELS_MAX, TEXT_FIELD_CHARS_MAX
from tracklog.schemas.redaction import Redaction

Record = dict[str, Any]

RUN_BYTES_MAX: Final = 256 * 1024 * 1024
"""One recorded run is held in memory whole."""

_LIST: Final = "list"
_BESIDE: Final = "beside"


def load_record(data: bytes, redaction: Redaction | None = None) -> Record:
    """The JSON object in `data`, without what `redaction` takes out.

    Raises ImportSourceError for anything that could not be written back exactly.
    That includes what JSON parsers let pass: NaN, numbers beyond their type, text that is not Unicode.
    """
    if len(data) > RUN_BYTES_MAX:
        raise ImportSourceError(f"a run of more than {RUN_BYTES_MAX} bytes")
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ImportSourceError(f"not UTF-8: byte 0x{data[error.start]:02x} at position {error.start}") from None
    except json.JSONDecodeError as error:
        raise ImportSourceError(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ImportSourceError("not JSON that can be read: it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ImportSourceError(f"a run is a JSON object, this is a {type(value).__name__}")
    try:
        exact = orjson.loads(orjson.dumps(value)) == value
    except (orjson.JSONEncodeError, orjson.JSONDecodeError, RecursionError) as error:
        raise ImportSourceError(f"JSON that cannot be written back: {error}") from None
    if not exact:
        raise ImportSourceError("JSON that cannot be written back: a number is not finite or too large")
    return value if redaction is None else redaction.message(value)


def source_of(record: Record) -> str:
    """SHA-256 of the record in hexadecimal. Spaces, line ends and the order of keys have no part in it."""
    return hashlib.sha256(orjson.dumps(record, option=orjson.OPT_SORT_KEYS)).hexdigest()


def message_list(record: Record, key: str) -> list[Record]:
    """The messages. Raises ImportSourceError, naming what is missing."""
    if key not in record:
        raise ImportSourceError(f"the field {key!r} is missing")
    messages = record[key]
    if not isinstance(messages, list) or not messages:
        raise ImportSourceError(f"{key!r} holds no list of messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise ImportSourceError(f"message {index} is no JSON object but a {type(message).__name__}")
    return messages


def asked_calls(message: Mapping[str, Any]) -> list[Asked]:
    """The calls of a reply in the chat-completions form. Arguments stay the text they are.

    Raises ImportSourceError, naming the field that is missing.
    """
    calls = message.get("tool_calls")
    if calls is not None and not isinstance(calls, list):
        raise ImportSourceError("'tool_calls' is no list")
    return [_asked(call) for call in calls or ()]


def _asked(call: object) -> Asked:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise ImportSourceError("a tool call without 'function'")
    for holder, field in ((call, "id"), (function, "name")):
        if not isinstance(holder.get(field), str) or not holder[field]:
            raise ImportSourceError(f"a tool call without {field!r}")
    arguments = function.get("arguments", "")
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return Asked(call["id"], function["name"], text)


def recording_of(record: Record, key: str) -> str:
    """What the record holds beside its messages, and where it holds those: JSON; "" when there is nothing."""
    beside = {name: value for name, value in record.items() if name != key}
    return orjson.dumps({_LIST: key, _BESIDE: beside}).decode()


def record_of(recording: str, messages: list[dict[str, Any]]) -> Record:
    """The whole record again."""
    kept = orjson.loads(recording)
    return {**kept[_BESIDE], kept[_LIST]: messages}


def stem(file: str) -> str:
    """A file's name without folders, endings and a final `_runs`: `a/airline_runs.jsonl.xz` is `airline`."""
    name = PurePath(file).name
    for ending in (".xz", ".jsonl", ".ndjson", ".traj"):
        name = name.removesuffix(ending)
    return name.removesuffix("_runs")


def labels_of(own: Mapping[str, object], further: object = None) -> dict[str, str]:
    """Labels: `own` first, then the scalars of `further` as far as they fit. None and long texts are no labels."""
    labels: dict[str, str] = {}
    for name, value in (*own.items(), *(further.items() if isinstance(further, dict) else ())):
        text = label_text(value)
        if text and len(text) <= TEXT_FIELD_CHARS_MAX and name not in labels and len(labels) < LABELS_MAX:
            labels[name] = text
    return labels


def label_text(value: object) -> str:
    """A scalar as people write it in a filter: 1.0 is `1`, true is `true`; "" for anything else."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.15g}"
    return str(value) if isinstance(value, str | int) else ""


def bad_run(file: str, line: int, error: ImportSourceError | ValidationError) -> BadRun:
    """Names file, line and reason."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return BadRun(file=file, line=line, reason=f"{where}: {first['msg'].removeprefix('Value error, ')}")
    return BadRun(file=file, line=line, reason=str(error))
