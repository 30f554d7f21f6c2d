from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracklog.infra.log.headers import decode_headers, encode_headers
from tracklog.schemas.errors import LogFormatError

HEADERS = st.lists(st.tuples(st.text(max_size=20), st.binary(max_size=40)), max_size=6).map(tuple)


@given(HEADERS)
def test_headers_come_back_as_they_were(headers: tuple[tuple[str, bytes], ...]) -> None:
    assert decode_headers(encode_headers(headers)) == headers


def test_stored_layout_never_changes() -> None:
    encoded = encode_headers((("tl-type", b"ToolIntent"), ("e", b"")))
    assert encoded == b"\x14\x00\x07\x00tl-type\x0a\x00\x00\x00\x01\x00e\x00\x00\x00\x00ToolIntent"
    assert encode_headers(()) == b"\x00\x00"


@pytest.mark.parametrize("cut", [1, 5])
def test_damaged_headers_are_an_error(cut: int) -> None:
    with pytest.raises(LogFormatError):
        decode_headers(encode_headers((("name", b"value"),))[:-cut])


@pytest.mark.parametrize("found", [None, "text", b"", b"\x01", 7])
def test_what_a_damaged_file_gives_for_headers_is_an_error(found: object) -> None:
    with pytest.raises(LogFormatError):
        decode_headers(found)  # type: ignore[arg-type]
