from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
import pytest

from tracklog.schemas.errors import InputError
from tracklog.schemas.record_file import FileRecord, RecordFile, read_records

RECORDS = [
    FileRecord("t", 0, 0, 0, b"k", b"v", (("name", b"\x00"),)),
    FileRecord("t", 3, 2**40, 1, None, None, ()),
]


def test_records_read_back_as_they_were_written() -> None:
    file = BytesIO()
    writer = RecordFile(file)
    for record in RECORDS:
        writer.write(record)
    writer.close()
    file.seek(0)

    assert list(read_records(file)) == RECORDS
    file.seek(0)
    data: Any = list(fastavro.reader(file))
    assert [datum["offset"] for datum in data] == [0, 2**40]


def test_a_file_without_records_is_a_file() -> None:
    file = BytesIO()
    RecordFile(file).close()
    file.seek(0)

    assert list(read_records(file)) == []


@pytest.mark.parametrize("data", [b"", b"no avro", b"Obj\x01"])
def test_another_file_is_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="no file of log records"):
        list(read_records(BytesIO(data)))
