"""Files of a device, below a local folder."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastflight.client.answers import RemoteEntry
from fastflight.client.local_files import local_digest
from fastflight.client.partial_file import FolderWriter
from fastflight.errors import DataError, ProtocolError, RequestError

ABC = RemoteEntry(3, "sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"old")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").symlink_to(tmp_path / "out")
    with FolderWriter(tmp_path / "in", {"a": ABC}) as writer:
        writer.add("a", 0, b"abc")
    assert (tmp_path / "in" / "a").read_bytes() == b"abc"
    assert not (tmp_path / "in" / "a").is_symlink()
    assert (tmp_path / "out").read_bytes() == b"old"


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    with FolderWriter(tmp_path, {"x/a": ABC, "b": RemoteEntry(0)}) as writer:
        writer.add("x/a", 0, b"ab")
        assert [path.suffix for path in (tmp_path / "x").iterdir()] == [".new"]
        writer.add("x/a", 2, b"c")
        writer.add("b", 0, b"")
        assert (tmp_path / "x" / "a").read_bytes() == b"abc"
    assert (writer.paths, writer.bytes) == (["x/a", "b"], 3)
    assert local_digest(tmp_path / "x" / "a", "sha256") == ABC.digest
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "x"]


def test_a_failure_keeps_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(LookupError), FolderWriter(tmp_path, {"a": ABC}) as writer:
        writer.add("a", 0, b"ab")
        raise LookupError
    with (
        pytest.raises(DataError, match="the file changed while it was copied"),
        FolderWriter(tmp_path, {"a": ABC}) as writer,
    ):
        writer.add("a", 0, b"abd")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_file_that_is_not_what_the_device_sent_does_not_take_its_place(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(b"old")
    with pytest.raises(DataError, match="not what the device sent") as raised:
        with FolderWriter(tmp_path, {"a": RemoteEntry(3), "b": RemoteEntry(3)}) as writer:
            writer.add("a", 0, b"ab")
            writer.expect([ABC.digest])
            writer.add("a", 2, b"c")
            writer.add("b", 0, b"ab")
            writer.expect([ABC.digest])
            writer.add("b", 2, b"d")
    assert raised.value.where == "b"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert ((tmp_path / "a").read_bytes(), (tmp_path / "b").read_bytes()) == (b"abc", b"old")


@pytest.mark.skipif(sys.platform == "win32", reason="its files have no limit to set")
@pytest.mark.parametrize("sizes", [[600], [600, 600], [600, 9000]], ids=["at the end", "then more", "at once"])
def test_storage_that_ends_leaves_nothing_but_the_old_file(tmp_path: Path, sizes: list[int]) -> None:
    (tmp_path / "b.bin").write_bytes(b"old")
    writer = FolderWriter(tmp_path, {"b.bin": RemoteEntry(sum(sizes))})
    with file_size_limit(500), pytest.raises(OSError, match="too large"), writer:
        for place, size in enumerate(sizes):
            writer.add("b.bin", sum(sizes[:place]), bytes(size))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("b.bin", b"old")]


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size` bytes: as a disk that is full, but for the error's number."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    "pieces", [[("b", 0)], [("../a", 0)], [("a", 1)], [("a", 0), ("a", 2)], [("a", 0), ("b", 0)]], ids=str
)
def test_what_a_server_must_not_send(tmp_path: Path, pieces: list[tuple[str, int]]) -> None:
    with pytest.raises(ProtocolError), FolderWriter(tmp_path, {"a": RemoteEntry(3)}) as writer:
        for path, offset in pieces:
            writer.add(path, offset, b"x")
    assert {path.name for path in tmp_path.iterdir()} <= {"a"}


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(RequestError, match="is not a file"), FolderWriter(tmp_path, {"a": ABC}) as writer:
        writer.add("a", 0, b"abc")


def test_a_file_that_is_called_like_the_part_of_another(tmp_path: Path) -> None:
    (tmp_path / ".b.part").write_bytes(b"of the user")
    with FolderWriter(tmp_path, {".a.part": ABC, "a": ABC, "b": ABC, "c" * 255: ABC}) as writer:
        for path in (".a.part", "a", "b", "c" * 255):
            writer.add(path, 0, b"abc")
    assert (tmp_path / ".a.part").read_bytes() == b"abc"
    assert (tmp_path / ".b.part").read_bytes() == b"of the user"
    assert len(list(tmp_path.iterdir())) == 5
