"""The blob store: what was put is there after a crash, is what its name says, and is written once."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tracklog.infra import blobs as blobs_module
from tracklog.infra.blobs import BlobStore, hash_of, open_blobs
from tracklog.schemas.errors import BlobAltered, BlobError, BlobMissing, BlobTooLarge

S3 = os.environ.get("TRACKLOG_TEST_S3", "")
"""Endpoint and bucket of an S3 service for tests, `http://HOST:PORT/BUCKET`."""


def s3_store() -> BlobStore:
    endpoint, _, bucket = S3.rpartition("/")
    options = {"endpoint": endpoint, "allow_http": "true", "region": "us-east-1"}
    keys = {"access_key_id": "test", "secret_access_key": "test"}
    return open_blobs(f"s3://{bucket}/some/prefix", options=options | keys, timeout_s=10)


@pytest.fixture(params=["directory", "file-url", "memory", *(["s3"] if S3 else [])])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "s3":
        return s3_store()
    with_space = (tmp_path / "a b").as_uri()
    return open_blobs({"directory": str(tmp_path / "x"), "file-url": with_space, "memory": "memory://"}[request.param])


@pytest.mark.parametrize("data", [b"", b"\x00", b"hello", b"\xff" * 100_000])
def test_what_was_put_comes_back_under_its_sha256(store: BlobStore, data: bytes) -> None:
    digest = store.put(data, media_type="text/plain")

    assert digest == hashlib.sha256(data).hexdigest() == hash_of(data)
    assert store.get(digest) == data
    assert store.has(digest)


def test_a_second_put_of_the_same_content_is_the_same_blob(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs_module, "RECENT_PUTS_MAX", 0)

    first, second = store.put(b"same"), store.put(b"same")

    assert first == second
    assert store.get(first) == b"same"


def test_a_blob_never_put_is_missing_by_name(store: BlobStore) -> None:
    digest = hash_of(b"never put anywhere")

    assert not store.has(digest)
    with pytest.raises(BlobMissing, match=digest):
        store.get(digest)


@pytest.mark.parametrize(
    "name", ["", "abc", "A" * 64, "../../../etc/passwd", "g" * 64, "a" * 63, "a" * 65, "a" * 64 + "\n"]
)
def test_only_a_hash_is_a_name(store: BlobStore, name: str) -> None:
    for call in (store.get, store.has, store.ref):
        with pytest.raises(BlobError, match="no blob hash"):
            call(name)


def test_the_pointer_says_nothing_of_the_stores_address(store: BlobStore) -> None:
    digest = store.put(b"x")

    assert store.ref(digest) == f"sha256/{digest[:2]}/{digest[2:]}"


def test_one_byte_too_many_is_refused_and_the_limit_itself_is_not(
    monkeypatch: pytest.MonkeyPatch, store: BlobStore
) -> None:
    monkeypatch.setattr(blobs_module, "BLOB_BYTES_MAX", 10)

    assert store.get(store.put(b"x" * 9)) == b"x" * 9
    assert store.get(store.put(b"x" * 10)) == b"x" * 10
    with pytest.raises(BlobTooLarge, match="larger than BLOB_BYTES_MAX=10"):
        store.put(b"x" * 11)


def test_blobs_put_by_one_process_are_there_for_another(tmp_path: Path) -> None:
    digest = open_blobs(str(tmp_path)).put(b"x")

    assert open_blobs(str(tmp_path)).get(digest) == b"x"
    assert (tmp_path / "sha256" / digest[:2] / digest[2:]).read_bytes() == b"x"


@pytest.mark.parametrize("found", [b"", b"hellO", b"hello and more"])
def test_altered_bytes_are_found_and_putting_the_content_again_heals_them(tmp_path: Path, found: bytes) -> None:
    digest = open_blobs(str(tmp_path)).put(b"hello")
    path = tmp_path / "sha256" / digest[:2] / digest[2:]
    path.chmod(0o600)
    path.write_bytes(found)

    with pytest.raises(BlobAltered, match=digest):
        open_blobs(str(tmp_path)).get(digest)
    open_blobs(str(tmp_path)).put(b"hello")

    assert open_blobs(str(tmp_path)).get(digest) == b"hello"


def test_file_then_folder_are_synced_before_put_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(handle: int) -> None:
        done.append("folder " + name if os.path.isdir(name := os.readlink(f"/proc/self/fd/{handle}")) else "file")
        fsync(handle)

    def watched_replace(source: str, target: Path) -> None:
        done.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    root = tmp_path / "new" / "root"
    digest = open_blobs(str(root)).put(b"x")
    parent = root / "sha256" / digest[:2]

    made = [tmp_path, tmp_path / "new", root, root / "sha256"]
    assert done == [*(f"folder {path}" for path in made), "file", "rename", f"folder {parent}"]


def test_a_blob_that_another_process_has_just_written_is_synced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = open_blobs(str(tmp_path)).put(b"x")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))

    open_blobs(str(tmp_path)).put(b"x")

    assert synced == [str(tmp_path / "sha256" / digest[:2])]


def test_a_shared_prompt_is_written_once_a_process(tmp_path: Path) -> None:
    store = open_blobs(str(tmp_path))
    digest = store.put(b"system prompt")
    path = tmp_path / "sha256" / digest[:2] / digest[2:]
    path.unlink()

    assert store.put(b"system prompt") == digest
    assert not path.exists(), "remembered, not written again"


def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs_module, "RECENT_PUTS_MAX", 2)
    store = open_blobs(str(tmp_path))
    digests = [store.put(data) for data in (b"1", b"2", b"1", b"3")]
    for digest in digests:
        (tmp_path / "sha256" / digest[:2] / digest[2:]).unlink(missing_ok=True)

    for data in (b"1", b"3", b"2"):
        store.put(data)

    assert [store.has(hash_of(data)) for data in (b"1", b"2", b"3")] == [False, True, False]


def test_a_put_that_failed_is_not_remembered(tmp_path: Path) -> None:
    (tmp_path / "root").write_bytes(b"a file in the way")
    store = open_blobs(str(tmp_path / "root"))
    with pytest.raises(BlobError):
        store.put(b"x")
    (tmp_path / "root").unlink()

    assert store.get(store.put(b"x")) == b"x"


def test_many_threads_put_the_same_and_different_content(tmp_path: Path) -> None:
    store = open_blobs(str(tmp_path))
    errors: list[BaseException] = []

    def work(mine: int) -> None:
        try:
            for n in range(20):
                store.put(b"shared %d" % n)
                store.put(b"own %d %d" % (mine, n))
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert errors == []
    assert sum(1 for path in tmp_path.rglob("*") if path.is_file()) == 20 + 8 * 20
    assert all(store.get(hash_of(b"shared %d" % n)) for n in range(20))


def test_a_file_where_the_directory_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_bytes(b"")

    with pytest.raises(BlobError, match=r"cannot write blob .*blobs/sha256.*TRACKLOG_BLOBS"):
        open_blobs(str(tmp_path / "blobs")).put(b"x")


@pytest.fixture
def read_only_directory() -> Iterator[Path]:
    """A directory that this process may read and not write, also when the tests run as root."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        yield path
        os.seteuid(user)
        path.chmod(0o755)


def test_a_read_only_directory_says_so_and_what_to_do(read_only_directory: Path) -> None:
    with pytest.raises(BlobError, match="Permission denied") as caught:
        open_blobs(str(read_only_directory)).put(b"x")

    assert str(read_only_directory) in caught.value.message
    assert "TRACKLOG_BLOBS" in caught.value.hint
    assert caught.value.definite


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    tried = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)], capture_output=True, check=False
    )
    if tried.returncode != 0:
        pytest.skip(f"cannot mount a small file system: {tried.stderr.decode().strip()}")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_disk_says_so_and_leaves_no_half_blob(small_disk: Path) -> None:
    store = open_blobs(str(small_disk))
    kept = store.put(b"a" * 100_000)

    with pytest.raises(BlobError, match="No space left") as caught:
        store.put(b"b" * 400_000)

    assert "disk is full" in caught.value.hint
    assert not store.has(hash_of(b"b" * 400_000))
    assert store.get(kept) == b"a" * 100_000
    assert not list(small_disk.rglob(".put-*"))


PUT_FOR_EVER = """
import itertools, sys
from tracklog.infra.blobs import open_blobs
store = open_blobs(sys.argv[1])
for n in itertools.count():
    print(store.put(b"%d" % n * 5000), flush=True)
"""


def test_after_kill_9_everything_that_was_said_to_be_put_is_there(tmp_path: Path) -> None:
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PUT_FOR_EVER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **path}, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline().strip() for _ in range(50)]
        process.send_signal(signal.SIGKILL)
        said += [line.strip() for line in process.stdout if line.endswith("\n")]

    store = open_blobs(str(tmp_path))
    assert len(said) >= 50
    assert all(hash_of(store.get(digest)) == digest for digest in said)
    whole = [path for path in tmp_path.rglob("*") if path.is_file() and not path.name.startswith(".put-")]
    assert all(hash_of(path.read_bytes()) == path.parent.name + path.name for path in whole)


@pytest.mark.parametrize("url", ["s3://", "gs://"])
def test_an_address_that_cannot_be_is_refused_when_opened(url: str) -> None:
    with pytest.raises(BlobError, match="cannot open blob store"):
        open_blobs(url)


def test_an_unknown_option_is_refused_without_its_value() -> None:
    with pytest.raises(BlobError, match="nope") as caught:
        open_blobs("s3://bucket", options={"nope": "geheim"})

    assert "geheim" not in str(caught.value)


def test_an_object_store_that_does_not_answer_is_an_error_within_the_bound() -> None:
    options = {"endpoint": "http://127.0.0.1:1", "allow_http": "true", "region": "x"}
    keys = {"access_key_id": "a", "secret_access_key": "geheim"}
    store = open_blobs("s3://bucket/p", options=options | keys, timeout_s=4)
    started = time.monotonic()

    for call in (lambda: store.put(b"x"), lambda: store.get(hash_of(b"x")), lambda: store.has(hash_of(b"x"))):
        with pytest.raises(BlobError, match=r"blob sha256/.* in s3://bucket/p") as caught:
            call()
        assert "geheim" not in str(caught.value)
        assert "\n" not in str(caught.value)

    assert time.monotonic() - started < 3 * 4


def test_a_directory_store_loads_no_object_store_client(tmp_path: Path) -> None:
    code = "import sys; from tracklog.infra.blobs import open_blobs; open_blobs(sys.argv[1]).put(b'x')"
    check = f"{code}; print('obstore' in sys.modules)"
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(
        [sys.executable, "-c", check, str(tmp_path)],
        env={**os.environ, **path},
        capture_output=True,
        check=True,
    )

    assert answer.stdout.strip() == b"False"
