"""Log records as an Avro object container file: what any Avro tool reads, with the bytes of each record untouched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, Final, NamedTuple

import fastavro
import fastavro.write

from tracklog.schemas.errors import InputError

SCHEMA: Final = fastavro.parse_schema(
    {
        "type": "record",
        "name": "tracklog.LogRecord",
        "doc": "One record of a Tracklog topic. `timestamp_ms` is the append time in milliseconds since 1970 UTC.",
        "fields": [
            {"name": "topic", "type": "string"},
            {"name": "partition", "type": "int"},
            {"name": "offset", "type": "long"},
            {"name": "timestamp_ms", "type": "long"},
            {"name": "key", "type": ["null", "bytes"]},
            {"name": "value", "type": ["null", "bytes"]},
            {
                "name": "headers",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "tracklog.Header",
                        "fields": [{"name": "name", "type": "string"}, {"name": "value", "type": "bytes"}],
                    },
                },
            },
        ],
    }
)


class FileRecord(NamedTuple):
    """Field for field a record of the log port."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class RecordFile:
    """Writes records to a file one by one; memory holds one block. Close it to write the last block."""

    def __init__(self, file: IO[bytes]) -> None:
        self._writer = fastavro.write.Writer(file, SCHEMA)

    def write(self, record: tuple[Any, ...]) -> None:
        """`record` has the fields of FileRecord, in their order."""
        self._writer.write(_datum(FileRecord(*record)))

    def close(self) -> None:
        """Flushes; the file itself stays open, it is the caller's."""
        self._writer.flush()


def read_records(file: IO[bytes]) -> Iterator[FileRecord]:
    """The inverse. Raises InputError for a file that is none of ours."""
    try:
        for datum in fastavro.reader(file):
            fields: Any = datum
            headers = tuple((header["name"], header["value"]) for header in fields["headers"])
            yield FileRecord(**{**fields, "headers": headers})
    except (ValueError, KeyError, TypeError, EOFError) as error:
        raise InputError(f"this is no file of log records: {error}") from error


def _datum(record: FileRecord) -> dict[str, Any]:
    headers = [{"name": name, "value": value} for name, value in record.headers]
    return {**record._asdict(), "headers": headers}
