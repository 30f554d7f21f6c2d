"""Long texts leave the event and come back whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracklog.infra.blobs import BlobStore, open_blobs
from tracklog.producers.bodies import body_of, whole_text
from tracklog.schemas.errors import BlobAltered, BlobMissing
from tracklog.schemas.values import Body


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return open_blobs(str(tmp_path / "blobs"))


@pytest.mark.parametrize(("size", "stored"), [(0, False), (99, False), (100, False), (101, True)])
def test_a_text_up_to_the_limit_stays_in_the_event(size: int, stored: bool, blobs: BlobStore) -> None:
    body = body_of("x" * size, blobs, 100, "text/plain")
    assert (body.stored, len(body.text), body.size_bytes) == (stored, min(size, 100), size)
    assert whole_text(body, blobs) == "x" * size


@pytest.mark.parametrize("limit", range(9))
def test_a_character_is_never_split(limit: int, blobs: BlobStore) -> None:
    text = "aé€😀"
    body = body_of(text, blobs, limit)
    assert text.startswith(body.text)
    assert limit - 4 < len(body.text.encode()) <= limit
    assert whole_text(body, blobs) == text
    assert body.size_bytes == 10


def test_a_missing_and_an_altered_blob_are_named(blobs: BlobStore) -> None:
    body = body_of("x" * 100, blobs, 10)
    with pytest.raises(BlobMissing, match=body.hash.hex()):
        whole_text(body, open_blobs(blobs.url + "-elsewhere"))
    (file,) = [path for path in Path(blobs.url).rglob("*") if path.is_file()]
    file.chmod(0o644)
    file.write_bytes(b"y" * 100)
    with pytest.raises(BlobAltered):
        whole_text(body, blobs)


def test_a_body_that_lies_about_its_size_is_named(blobs: BlobStore) -> None:
    body = body_of("x" * 100, blobs, 10)
    lying = Body(text="x", hash=body.hash, size_bytes=101, stored=True)
    with pytest.raises(BlobAltered, match="has 100 bytes, its event says 101"):
        whole_text(lying, blobs)
