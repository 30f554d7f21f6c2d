from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracklog.infra.log.headers import OWN_NAMES, decode_headers, encode_headers
from tracklog.schemas.errors import LogFormatError

HEADERS = st.lists(st.tuples(st.text(max_size=20), st.binary(max_size=40)), max_size=6).map(tuple)


@given(HEADERS)
def test_headers_come_back_as_they_were(headers: tuple[tuple[str, bytes], ...]) -> None:
    assert decode_headers(encode_headers(headers)) == headers


OWN = st.lists(st.tuples(st.sampled_from(OWN_NAMES), st.binary(max_size=300)), max_size=6).map(tuple)


@given(OWN)
def test_headers_of_our_own_come_back_as_they_were(headers: tuple[tuple[str, bytes], ...]) -> None:
    assert decode_headers(encode_headers(headers)) == headers


def test_headers_of_our_own_take_two_bytes_each_beside_their_values() -> None:
    headers = (("tl-type", b"ToolIntent"), ("tl-schema", bytes(8)), ("tl-hash", bytes(32)))
    assert encode_headers(headers) == b"\x06\x80\x00\x0a\x01\x08\x02\x20ToolIntent" + bytes(40)


def test_own_headers_as_they_were_stored_before_are_read() -> None:
    assert decode_headers(b"\x0d\x00\x07\x00tl-type\x02\x00\x00\x00ab") == (("tl-type", b"ab"),)


def test_stored_layout_never_changes() -> None:
    encoded = encode_headers((("tl-type", b"ToolIntent"), ("e", b"")))
    assert encoded == b"\x14\x00\x07\x00tl-type\x0a\x00\x00\x00\x01\x00e\x00\x00\x00\x00ToolIntent"
    assert encode_headers(()) == b"\x00\x00"


@pytest.mark.parametrize("cut", [1, 5])
def test_damaged_headers_are_an_error(cut: int) -> None:
    with pytest.raises(LogFormatError):
        decode_headers(encode_headers((("name", b"value"),))[:-cut])


@pytest.mark.parametrize("found", [None, "text", b"", b"\x01", b"\x02\x80\x09\x01a", b"\x01\x80\x00", 7])
def test_what_a_damaged_file_gives_for_headers_is_an_error(found: object) -> None:
    with pytest.raises(LogFormatError):
        decode_headers(found)  # type: ignore[arg-type]
