"""Snapshots of a workspace, and going back to them."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracklog.infra.blobs import BlobStore, hash_of, open_blobs
from tracklog.infra.clock import ManualClock, SystemClock
from tracklog.producers import workspace_files
from tracklog.producers.workspace import CHAIN_MAX, Workspace
from tracklog.producers.workspace_files import MARKER
from tracklog.producers.workspace_tree import escaped, unescaped
from tracklog.schemas.errors import BlobAltered, BlobMissing, WorkspaceError
from tracklog.schemas.values import BlobRef, SnapshotKind

NOBODY = 65534


@pytest.fixture
def blobs() -> BlobStore:
    return open_blobs("memory://")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "work"


def opened(root: Path, blobs: BlobStore, *, first: bool = True) -> Workspace:
    workspace = Workspace(root, "trip-1", blobs, SystemClock())
    workspace.open(first=first)
    return workspace


def looks(root: Path) -> dict[str, tuple[str, int, bytes]]:
    """Everything under the root but the marker, as it lies there."""
    out: dict[str, tuple[str, int, bytes]] = {}
    for path in sorted(root.rglob("*")):
        status, name = path.lstat(), str(path.relative_to(root))
        if path.is_symlink():
            out[name] = ("link", 0, os.fsencode(os.readlink(path)))
        elif path.is_dir():
            out[name] = ("dir", stat.S_IMODE(status.st_mode), b"")
        elif name != MARKER:
            out[name] = ("file", stat.S_IMODE(status.st_mode), path.read_bytes())
    return out


def furnish(root: Path) -> None:
    """One of everything."""
    (root / "src").mkdir()
    (root / "src" / "main.py").write_text("print()")
    (root / "run.sh").write_text("#!/bin/sh")
    (root / "run.sh").chmod(0o755)
    (root / "secret").write_text("s")
    (root / "secret").chmod(0o400)
    (root / "empty").mkdir()
    (root / "closed").mkdir()
    (root / "closed" / "inside").write_text("i")
    (root / "closed").chmod(0o555)
    (root / "nothing").write_bytes(b"")
    (root / "näme").write_text("utf-8")
    Path(os.fsdecode(os.fsencode(root) + b"/by\xff\n%tes")).write_text("no text")
    os.symlink("src/main.py", root / "link")
    os.symlink("/nowhere/at/all", root / "dangling")
    os.symlink("src", root / "way")


def spoil(root: Path) -> None:
    """Changes every kind of thing into another."""
    shutil.rmtree(root / "src")
    (root / "src").write_text("a file now")
    (root / "run.sh").chmod(0o644)
    (root / "secret").unlink()
    (root / "empty").rmdir()
    os.symlink("/tmp", root / "empty")
    (root / "closed").chmod(0o755)
    (root / "closed" / "more").write_text("m")
    (root / "nothing").write_text("something")
    (root / "link").unlink()
    (root / "link").mkdir()
    (root / "link" / "deep").mkdir()
    (root / "link" / "deep").chmod(0o000)
    (root / "new").write_text("n")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_everything_comes_back_as_it_was(root: Path, blobs: BlobStore, elsewhere: bool, tmp_path: Path) -> None:
    """Given a snapshot, when files, modes, links and folders are changed or lost, then a restore brings all back."""
    first = opened(root, blobs)
    furnish(root)
    ref, before = first.snapshot().ref, looks(root)
    spoil(root)

    target = tmp_path / "other" if elsewhere else root
    missing = opened(target, blobs, first=False).restore(ref)

    assert missing == ()
    assert looks(target) == before
    assert opened(target, blobs).snapshot().tree_hash == first_hash(ref, blobs)


def first_hash(ref: BlobRef, blobs: BlobStore) -> str:
    data = blobs.get(ref.hash.hex())
    return data.decode().partition('"tree":"')[2][:64]


NAMES = st.sampled_from(["a", "b", "a-b", "c"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "mkdir", "link", "remove", "mode"]),
        st.lists(NAMES, min_size=1, max_size=3).map("/".join),
        st.integers(0, 3),
    ),
    max_size=12,
)


def apply(root: Path, step: tuple[str, str, int]) -> None:
    what, name, number = step
    at = root / name
    try:
        if what == "write":
            at.write_text("x" * number)
        elif what == "mkdir":
            at.mkdir(parents=True)
        elif what == "link":
            os.symlink("abcd"[number], at)
        elif what == "mode" and not at.is_symlink():
            at.chmod((0o700, 0o750, 0o711, 0o770)[number])
        elif what == "remove":
            shutil.rmtree(at) if at.is_dir() and not at.is_symlink() else at.unlink()
    except OSError:
        return  # a step that does not fit where the tree stands


@settings(max_examples=60, deadline=None)
@given(histories=st.lists(STEPS, min_size=1, max_size=5), back=st.integers(0, 4))
def test_any_snapshot_of_a_series_can_be_restored(histories: list[list[tuple[str, str, int]]], back: int) -> None:
    """Given snapshots after any changes, full ones and deltas, when one is restored anywhere, then it is that tree."""
    blobs = open_blobs("memory://")
    with tempfile.TemporaryDirectory() as folder:
        root, other = Path(folder) / "work", Path(folder) / "other"
        workspace = opened(root, blobs)
        taken = []
        for steps in histories:
            for step in steps:
                apply(root, step)
            taken.append((workspace.snapshot(), looks(root)))
        snapshot, before = taken[min(back, len(taken) - 1)]

        opened(other, blobs, first=False).restore(snapshot.ref)
        workspace.restore(snapshot.ref)

        assert looks(other) == before
        assert looks(root) == before


def test_only_what_changed_is_stored_again(root: Path, blobs: BlobStore) -> None:
    """Given 50 files, when one changes, then the next manifest names one, and an unchanged tree makes none."""
    workspace = opened(root, blobs)
    for number in range(50):
        (root / f"f{number}").write_text(str(number))
    full = workspace.snapshot()
    (root / "f7").write_text("changed")
    delta = workspace.snapshot()
    same = workspace.snapshot()

    assert (full.kind, delta.kind) == (SnapshotKind.FULL, SnapshotKind.DELTA)
    assert delta.ref.size_bytes < full.ref.size_bytes / 10
    assert (full.changed, delta.changed, same.changed) == (True, True, False)
    assert same.ref == delta.ref


def test_a_chain_of_changes_ends_in_a_whole_manifest(root: Path, blobs: BlobStore) -> None:
    workspace = opened(root, blobs)
    for number in range(100):
        (root / f"f{number}").write_text(str(number))
    kinds = []
    for number in range(CHAIN_MAX + 3):
        (root / "f0").write_text(f"turn {number}")
        kinds.append(workspace.snapshot().kind)
    assert [n for n, kind in enumerate(kinds) if kind is SnapshotKind.FULL] == [0, CHAIN_MAX + 1]


def test_equal_trees_have_equal_manifests(tmp_path: Path, blobs: BlobStore) -> None:
    refs = []
    for name in ("one", "two"):
        workspace = opened(tmp_path / name, blobs)
        furnish(tmp_path / name)
        refs.append(workspace.snapshot().ref)
    assert refs[0] == refs[1]


def test_a_change_that_leaves_size_and_time_is_seen(root: Path, blobs: BlobStore) -> None:
    """Given a file that changes within a tick of the clock, when it is looked at again, then it is read again."""
    workspace = opened(root, blobs)
    (root / "f").write_text("one")
    before = workspace.snapshot()
    times = (root / "f").stat()
    (root / "f").write_text("two")
    os.utime(root / "f", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert workspace.snapshot().tree_hash != before.tree_hash


def test_an_unchanged_file_is_not_read_again(root: Path, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given files that have not changed for a while, when another snapshot is taken, then none is opened."""
    clock = ManualClock(now_us=SystemClock().now_us() + 60_000_000)
    workspace = Workspace(root, "trip-1", blobs, clock)
    workspace.open(first=True)
    (root / "f").write_text("one")
    first = workspace.snapshot()
    monkeypatch.setattr(workspace_files, "CHUNK_BYTES", None)  # reading anything would fail now
    assert workspace.snapshot().tree_hash == first.tree_hash


def test_a_file_larger_than_a_part_comes_back(root: Path, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_files, "CHUNK_BYTES", 10)
    workspace = opened(root, blobs)
    contents = {f"f{size}": bytes(range(size)) for size in (9, 10, 11, 20, 25)}
    for name, data in contents.items():
        (root / name).write_bytes(data)
    ref = workspace.snapshot().ref
    for name in contents:
        (root / name).write_bytes(b"lost")
    workspace.restore(ref)
    assert {name: (root / name).read_bytes() for name in contents} == contents


def test_a_socket_is_left_out_and_left_alone(root: Path, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = opened(root, blobs)
    monkeypatch.chdir(root)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
        snapshot = workspace.snapshot()
        workspace.restore(snapshot.ref)
    assert snapshot.left_out == ("socket",)
    assert (root / "socket").is_socket()


@contextmanager
def unprivileged(folder: Path) -> Iterator[None]:
    """As a user whom the modes of files hold back."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_cannot_be_read_is_kept_as_it_lies_and_named(blobs: BlobStore) -> None:
    """Given a file and a folder without permission, when restored, then they are untouched; elsewhere, told missing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root, other = folder / "work", folder / "other"
        for path in (root, root / "shut", other):
            path.mkdir()
        (root / "shut" / "inside").write_text("i")
        (root / "locked").write_text("l")
        (root / "open").write_text("o")
        with unprivileged(folder):
            workspace = opened(root, blobs)
            (root / "shut").chmod(0o000)
            (root / "locked").chmod(0o000)
            snapshot = workspace.snapshot()
            (root / "open").write_text("changed")
            here = workspace.restore(snapshot.ref)
            there = opened(other, blobs, first=False).restore(snapshot.ref)
            (root / "shut").chmod(0o700)
            (root / "locked").chmod(0o600)
            assert snapshot.left_out == there == ("locked", "shut")
            assert here == ()
            assert (root / "open").read_text() == (other / "open").read_text() == "o"
            assert (root / "shut" / "inside").read_text() == "i"
            assert (root / "locked").read_text() == "l"


def test_a_directory_that_cannot_be_written_is_a_clear_error(blobs: BlobStore) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "work"
        root.mkdir()
        with unprivileged(Path(name)):
            root.chmod(0o555)
            with pytest.raises(WorkspaceError, match=r"cannot write workspace .*work.*Permission denied"):
                opened(root, blobs)


def test_a_file_in_the_place_of_the_directory_is_a_clear_error(root: Path, blobs: BlobStore) -> None:
    root.write_text("a file")
    with pytest.raises(WorkspaceError, match="cannot write workspace"):
        opened(root, blobs)


def test_files_that_are_nobodys_are_never_removed(root: Path, blobs: BlobStore) -> None:
    """Given a directory with files and no marker, when it is to be restored into, then it is refused, untouched."""
    root.mkdir()
    (root / "thesis").write_text("years of work")
    with pytest.raises(WorkspaceError, match="has files in it"):
        opened(root, blobs, first=False)
    assert looks(root) == {"thesis": ("file", 0o644, b"years of work")}


def test_a_directory_belongs_to_one_trajectory(root: Path, blobs: BlobStore) -> None:
    opened(root, blobs)
    with pytest.raises(WorkspaceError, match="the workspace of trajectory 'trip-1', not of 'trip-2'"):
        Workspace(root, "trip-2", blobs, SystemClock()).open(first=True)


def test_a_blob_store_inside_of_the_workspace_is_refused(root: Path) -> None:
    with pytest.raises(WorkspaceError, match="lies inside"):
        opened(root, open_blobs(str(root / "blobs")))


def _lose(store: Path, digest: str) -> None:
    (store / "sha256" / digest[:2] / digest[2:]).unlink()


def _alter(store: Path, digest: str) -> None:
    path = store / "sha256" / digest[:2] / digest[2:]
    path.chmod(0o644)
    path.write_bytes(b"altered")


@pytest.mark.parametrize(("spoil_blob", "error"), [(_lose, BlobMissing), (_alter, BlobAltered)])
@pytest.mark.parametrize("which", ["manifest", "base", "content"])
def test_a_blob_that_is_lost_or_altered_is_found(
    root: Path,
    tmp_path: Path,
    spoil_blob: Callable[[Path, str], None],
    error: type[Exception],
    which: str,
) -> None:
    """Given a spoilt blob, when restored, then it is an error, and another snapshot can be restored after it."""
    blobs = open_blobs(str(tmp_path / "blobs"))
    workspace = opened(root, blobs)
    for number in range(9):
        (root / f"f{number}").write_text(f"first {number}")
    good = workspace.snapshot()
    (root / "f1").write_text("second")
    bad = workspace.snapshot()
    if which == "base":
        good, bad = bad, bad
    digest = {"manifest": bad.ref.hash.hex(), "base": good.ref.hash.hex(), "content": hash_of(b"second")}[which]
    spoil_blob(tmp_path / "blobs", digest)
    (root / "f1").write_text("third")
    (root / "extra").write_text("e")

    again = opened(root, blobs, first=False)
    with pytest.raises(error):
        again.restore(bad.ref)

    if which != "base":
        again.restore(good.ref)
        assert (root / "f1").read_text() == "first 1"
        assert not (root / "extra").exists()


def test_a_manifest_that_leads_out_of_the_workspace_is_refused(root: Path, blobs: BlobStore) -> None:
    for path in ("../x", "a/../../x", "/etc/x", "a//b", "link/x"):
        entries = f'{{"link":["link",0,"/etc",0],"{path}":["file",420,"{hash_of(b"x")}",1]}}'
        data = f'{{"version":1,"tree":"{"0" * 64}","put":{entries}}}'.encode()
        blobs.put(b"x")
        ref = BlobRef(hash=bytes.fromhex(blobs.put(data)), size_bytes=len(data))
        with pytest.raises(BlobAltered, match="workspace"):
            opened(root, blobs, first=False).restore(ref)


@given(st.binary(min_size=1, max_size=20))
def test_every_name_can_be_said_and_read_back(raw: bytes) -> None:
    name = os.fsdecode(raw)
    assert unescaped(escaped(name)) == name
    escaped(name).encode()
