"""The board's file system, in process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastflight.simulator.faults import Faults
from fastflight.simulator.files import FileSystem
from fastflight.simulator.oserror import BoardOSError


@pytest.fixture
def files(tmp_path: Path) -> FileSystem:
    root = tmp_path / "board"
    root.mkdir()
    (tmp_path / "outside.txt").write_text("not for the board")
    return FileSystem(str(root), capacity=10_000, heap=lambda: 1000)


def put(files: FileSystem, name: str, data: bytes) -> None:
    with files.open(name, "wb") as file:
        file.write(data)


def get(files: FileSystem, name: str) -> bytes:
    with files.open(name, "rb") as file:
        return bytes(file.read())


@pytest.mark.parametrize(
    ("name", "errno", "text"),
    [
        ("nope", 2, "[Errno 2] ENOENT"),
        ("e" * 256, 36, "36"),
        ("ü" * 128, 36, "36"),
        ("nul\0", 22, "[Errno 22] EINVAL"),
        ("\ud800", 22, "[Errno 22] EINVAL"),
        ("folder", 21, "[Errno 21] EISDIR"),
        ("file/below", 20, "20"),
    ],
)
def test_errors_are_the_boards(files: FileSystem, name: str, errno: int, text: str) -> None:
    files.mkdir("folder")
    put(files, "file", b"")
    with pytest.raises(BoardOSError) as caught:
        files.open(name)
    assert (caught.value.errno, caught.value.args, str(caught.value)) == (errno, (errno,), text)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "path", ["../outside.txt", "/../outside.txt", "folder/../../outside.txt", "link", "linked/outside.txt"]
)
def test_no_path_leads_outside(files: FileSystem, tmp_path: Path, path: str) -> None:
    files.mkdir("folder")
    os.symlink(tmp_path / "outside.txt", Path(files.root) / "link")
    os.symlink(tmp_path, Path(files.root) / "linked")
    for act in (files.open, files.stat, files.remove, lambda path: files.rename(path, "mine")):
        with pytest.raises(BoardOSError):
            act(path)
    with pytest.raises(BoardOSError):
        put(files, "linked/new", b"")
    assert (tmp_path / "outside.txt").read_text() == "not for the board"
    assert sorted(os.listdir(tmp_path)) == ["board", "outside.txt"]


def test_the_working_directory_is_the_boards(files: FileSystem) -> None:
    files.mkdir("folder")
    files.chdir("folder")
    put(files, "file", b"1")
    assert files.getcwd() == "/folder"
    assert files.names("/folder") == files.names() == files.names(".") == ["file"]
    files.chdir("../../..")
    assert files.getcwd() == "/"
    with pytest.raises(BoardOSError):
        files.chdir("nowhere")


def test_rename_replaces(files: FileSystem) -> None:
    put(files, "old", b"old")
    put(files, "new", b"new")
    files.rename("new", "old")
    assert get(files, "old") == b"new"
    assert files.names() == ["old"]


def test_a_folder_with_files_stays(files: FileSystem) -> None:
    files.mkdir("folder")
    put(files, "folder/file", b"")
    with pytest.raises(BoardOSError) as caught:
        files.remove("folder")
    assert caught.value.errno == 39
    with pytest.raises(BoardOSError) as caught:
        files.remove("/")
    assert caught.value.errno == 22


def test_listing_and_stat(files: FileSystem) -> None:
    files.mkdir("folder")
    put(files, "file", b"12345")
    assert list(files.entries()) == [("file", 0x8000, 0, 5), ("folder", 0x4000, 0, 0)]
    assert files.stat("file")[:7] == (0x8000, 0, 0, 0, 0, 0, 5)
    assert files.stat("folder")[0] == 0x4000
    assert len(files.stat("/")) == 10


def test_a_full_file_system(files: FileSystem) -> None:
    put(files, "a", bytes(9000))
    with files.open("b", "wb") as file:
        file.write(bytes(1000))
        with pytest.raises(BoardOSError) as caught:
            file.write(b"x")
    assert caught.value.errno == 28
    put(files, "a", bytes(9000))
    block, _, total, free = files.statvfs("/")[:4]
    assert (block, total, free) == (4096, 2, 0)
    files.remove("a")
    assert files.statvfs("/")[3] == 2


def test_writing_over_takes_no_room(files: FileSystem) -> None:
    put(files, "a", bytes(10_000))
    with files.open("a", "r+b") as file:
        file.seek(5000)
        assert file.write(b"x" * 5000) == 5000
        with pytest.raises(BoardOSError):
            file.write(b"x")
    with files.open("a", "ab") as file, pytest.raises(BoardOSError):
        file.write(b"x")


def test_full_after(tmp_path: Path) -> None:
    files = FileSystem(str(tmp_path), capacity=10_000, heap=lambda: 1000, faults=Faults.parse(["full-after=10"]))
    put(files, "a", bytes(10))
    with pytest.raises(BoardOSError) as caught:
        put(files, "b", b"x")
    assert caught.value.errno == 28


def test_binary_files(files: FileSystem) -> None:
    put(files, "a", b"one\r\ntwo\nthree")
    with files.open("a", "rb") as file:
        assert file.readline() == b"one\r\n"
        assert list(file) == [b"two\n", b"three"]
        assert file.seek(4) == 4
        buffer = bytearray(5)
        assert file.readinto(buffer, 2) == 2
        assert buffer == b"\ntw"[:2] + bytes(3)
        assert file.tell() == 6
        assert file.read(100) == b"wo\nthree"
        assert file.read(1) == b""


def test_text_files(files: FileSystem) -> None:
    with files.open("a", "w") as file:
        assert file.write("höhe\r\nβ\n") == 8
        assert file.write(b"raw") == 3
    assert get(files, "a") == "höhe\r\nβ\nraw".encode()
    with files.open("a") as file:
        assert file.read(2) == "hö"
        assert file.readline() == "he\r\n"
        assert file.readlines() == ["β\n", "raw"]


def test_a_read_larger_than_the_heap(files: FileSystem) -> None:
    put(files, "a", bytes(1001))
    with files.open("a", "rb") as file:
        with pytest.raises(MemoryError, match="allocating 1001 bytes"):
            file.read()
        assert len(file.read(1000)) == 1000
        assert len(file.read()) == 1


@pytest.mark.parametrize("mode", ["", "x", "rw", "b", "r+w", "rbz"])
def test_a_bad_mode(files: FileSystem, mode: str) -> None:
    with pytest.raises(ValueError, match="mode"):
        files.open("a", mode)
