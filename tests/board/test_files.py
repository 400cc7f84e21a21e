"""Files of every kind and size, with every kind of name; copies that break off; a full disk."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest

from fastflight.device import Transfer
from fastflight.errors import DeviceError, FileMissing

from .conftest import Board

# Around the sizes of blocks, windows and pieces.
SIZES = (0, 1, 31, 255, 256, 257, 1023)
LARGE = (4096, 4097, 16_385, 50_000)
CONTROL = b"\x00\x01\x02\x03\x04\x05\x04>\x04\r\n\x1b[A\x11\x13\x7f\x80\xff"


def content(kind: str, size: int) -> bytes:
    if kind == "random":
        return random.Random(size).randbytes(size)
    pattern = {"text": "één regel, 12.5\r\n".encode(), "control": CONTROL}[kind]
    return (pattern * (size // len(pattern) + 1))[:size]


@pytest.mark.parametrize("kind", ["random", "control"])
def test_every_content_comes_back_equal(board: Board, kind: str) -> None:
    session, path = board.session(), board.path("x.bin")
    large = () if "large files" in board.lacks else LARGE if kind == "random" else LARGE[:2]
    for size in (*SIZES, *large):
        data = content(kind, size)
        written = session.write(path, [data[: size // 2], data[size // 2 :]])
        assert (written.bytes, written.verified != "") == (size, True)
        assert b"".join(session.read(path)) == data, size
        assert session.stat(path).size == size


@pytest.mark.needs("large files")
@pytest.mark.parametrize("kind", ["random", "text"])
def test_compressed_copies_come_back_equal(board: Board, kind: str) -> None:
    session, path, data = board.session(), board.path("x.bin"), content(kind, 50_000)
    assert session.write(path, [data], transfer=Transfer(deflate=True)).bytes == len(data)
    assert b"".join(session.read(path, transfer=Transfer(deflate=True))) == data


def test_a_part_of_a_file(board: Board) -> None:
    session, path, data = board.session(), board.path("x.bin"), content("random", 1025)
    session.write(path, [data])
    for offset, limit in ((0, 10), (255, 257), (1024, 100), (1025, 5), (300, None)):
        expected = data[offset:] if limit is None else data[offset : offset + limit]
        assert b"".join(session.read(path, offset=offset, limit=limit)) == expected


NAMES = ("with blank.txt", "é.txt", "'quoted'.txt", "a#b%41.txt", "-n", "n" * 60, ".hidden", "两.bin")


def test_every_name(board: Board) -> None:
    session = board.session()
    before = {entry.path for entry in session.list(board.folder)}
    for number, name in enumerate(NAMES):
        session.write(board.path(name), [f"file {number}".encode()])
    assert {entry.path for entry in session.list(board.folder)} - before == {board.path(name) for name in NAMES}
    for number, name in enumerate(NAMES):
        assert b"".join(session.read(board.path(name))) == f"file {number}".encode()
        session.remove(board.path(name))
    assert {entry.path for entry in session.list(board.folder)} == before


@pytest.mark.needs("folders", "rename", "digests")
def test_folders_names_and_digests(board: Board) -> None:
    session, folder = board.session(), board.path("een map")
    session.mkdir(folder)
    session.write(f"{folder}/a", [b"one"])
    session.write(f"{folder}/b", [b"two"])
    session.rename(f"{folder}/a", f"{folder}/b")  # replaces it
    assert session.hash(f"{folder}/b") == ("sha256", hashlib.sha256(b"one").hexdigest())
    with pytest.raises(DeviceError, match="not empty"):
        session.remove(folder)
    tree = [("c/d.txt", [b"three"]), ("e", [b"", b"four"])]
    assert [path for path, _ in session.write_tree(folder, tree).files] == [f"{folder}/c/d.txt", f"{folder}/e"]
    digests = {each.path: each.digest for each in session.hashes(folder)}
    contents = {"b": b"one", "c/d.txt": b"three", "e": b"four"}
    assert digests == {f"{folder}/{path}": hashlib.sha256(data).hexdigest() for path, data in contents.items()}
    for path in ("b", "c/d.txt", "c", "e", ""):
        session.remove(f"{folder}/{path}".rstrip("/"))
    with pytest.raises(FileMissing):
        session.stat(folder)


class CopyInterrupted(Exception):
    """What a test breaks a copy off with."""


def test_a_copy_that_broke_off_goes_on(board: Board, tmp_path: Path) -> None:
    client, data = board.client(), content("random", 2049 if "large files" in board.lacks else 50_000)
    here, back, path = tmp_path / "a.bin", tmp_path / "back.bin", board.path("a.bin")
    here.write_bytes(b"the old content")
    client.put_file("board", path, here)
    here.write_bytes(data)

    def break_off(rows: int, done: int, total: int | None) -> None:
        if done:
            raise CopyInterrupted

    with pytest.raises(CopyInterrupted):
        client.put_file("board", path, here, progress=break_off)
    client.get_file("board", path, back)
    assert back.read_bytes() == b"the old content"
    copied = client.put_file("board", path, here)
    assert (copied.bytes, copied.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    back.unlink()
    (tmp_path / "back.bin.part").write_bytes(data[:1000])
    resumed = client.get_file("board", path, back)
    assert (back.read_bytes(), resumed.resumed_at) == (data, 0 if "digests" in board.lacks else 1000)
    assert [each.path for each in client.ls("board", board.folder)].count(path) == 1
    assert client.put_file("board", path, here, skip_unchanged=True).unchanged == ("digests" not in board.lacks)


@pytest.mark.needs("full disk")
def test_a_full_disk_keeps_the_old_file_and_its_room(board: Board) -> None:
    session, path = board.session(), board.path("x.bin")
    session.write(path, [b"the old content"])
    block = content("random", 1000)
    free = session.info().storage_free or 14_000  # a micro:bit does not say: 20 kB, and it keeps a part of each
    session.write(board.path("filling"), [block] * ((free - 10_000) // 1000))
    before = sorted(entry.path for entry in session.list(board.folder))
    with pytest.raises(DeviceError, match="no space left|no room|not enough"):
        session.write(path, [block] * 25)
    assert b"".join(session.read(path)) == b"the old content"
    assert sorted(entry.path for entry in session.list(board.folder)) == before
    session.exec(f"f=open({board.path('log')!r},'w');f.write('x'*500);f.close()")
    assert session.stat(board.path("log")).size == 500


@pytest.mark.needs("full disk", "folders")
def test_a_folder_for_which_there_is_no_room_leaves_nothing(board: Board, tmp_path: Path) -> None:
    (tmp_path / "new" / "sub").mkdir(parents=True)
    (tmp_path / "new" / "sub" / "big.bin").write_bytes(bytes(1_000_000))
    before = board.run("ls", "-r", board.folder).stdout
    result = board.run("cp", "-r", str(tmp_path / "new"), f"board:{board.path('new')}")
    assert (result.exit_code, "no space left" in result.stderr) == (1, True), result.stderr
    assert board.run("ls", "-r", board.folder).stdout == before


@pytest.mark.needs("timers")
def test_a_program_that_prints_during_copies_changes_nothing(board: Board) -> None:
    session, path, data = board.session(), board.path("x.bin"), content("random", 20_000)
    session.exec("import machine\nt=machine.Timer(-1)\nt.init(period=20,callback=lambda t:print('noise \\x04>'))")
    for _ in range(3):
        session.write(path, [data])
        assert b"".join(session.read(path)) == data
    assert session.hash(path)[1] == hashlib.sha256(data).hexdigest()
    session.exec("t.deinit()")
