"""Many files in one go: all of them, or the old tree."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fastflight.device import FileDigest, Inventory
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.staging import StagedFile, place_all
from fastflight.device.transfer.tree import MAX_PATHS
from fastflight.errors import (
    DataError,
    DeviceError,
    DeviceFull,
    FileMissing,
    ProtocolError,
    RequestError,
    TransportError,
    TransportTimeout,
)
from fastflight.protocol import Conversation
from tests.device.content import CONTENT
from tests.support.folders import files_below
from tests.support.refusals import refused

FILES = {"boot.py": b"print(1)\n", "lib/a.py": CONTENT[:3000], "lib/deep/b.py": b"", "data/c.csv": CONTENT}


def given(files: dict[str, bytes]) -> Iterator[tuple[str, list[bytes]]]:
    for path, content in files.items():
        yield path, [content[:1000], content[1000:]]


@pytest.mark.parametrize(
    "without", ["", "hashlib", "hashlib,binascii", "os.rename"], ids=["sha256", "crc32", "read back", "copied"]
)
def test_a_tree_is_written_and_hashed(board: Callable[[str], Inventory], tmp_path: Path, without: str) -> None:
    with board(f"without={without}").device("demo").lease("test") as session:
        written = session.write_tree("/app", given(FILES))
        assert written.at_once
        assert [(path, each.bytes) for path, each in written.files] == [
            (f"/app/{path}", len(content)) for path, content in FILES.items()
        ]
        hashed = session.hashes("/app")
    assert files_below(tmp_path) == {"old.bin": b"the old content"} | {
        f"app/{path}": data for path, data in FILES.items()
    }
    assert [each.path for each in hashed] == ["/app/boot.py", "/app/data/c.csv", "/app/lib/a.py", "/app/lib/deep/b.py"]
    if not without:
        assert hashed[0] == FileDigest("/app/boot.py", 9, "sha256", hashlib.sha256(FILES["boot.py"]).hexdigest())
    assert all(bool(each.digest) == (without != "hashlib,binascii") for each in hashed)


def test_a_folder_that_cannot_be_made_is_the_error(inventory: Inventory) -> None:
    with inventory.device("demo").lease("test") as session, pytest.raises(DeviceError) as raised:
        session.write_tree("/", given({f"{'n' * 300}/a.py": b"x"}))
    assert raised.value.errno == "ENAMETOOLONG"


def test_a_tree_that_breaks_leaves_the_old_one(inventory: Inventory, tmp_path: Path) -> None:
    def breaking() -> Iterator[tuple[str, list[bytes]]]:
        yield "old.bin", [b"new"]
        yield "other.bin", [CONTENT]
        raise DataError("the source broke")

    with inventory.device("demo").lease("test") as session:
        with pytest.raises(DataError):
            session.write_tree("/", breaking())
        assert [entry.path for entry in session.list("/")] == ["/old.bin"]
    assert files_below(tmp_path) == {"old.bin": b"the old content"}


@pytest.mark.parametrize("after", [2500, 5000, 12000])
def test_a_tree_whose_board_goes_away_leaves_the_old_one(
    board: Callable[[str], Inventory], tmp_path: Path, after: int
) -> None:
    device = board(f"fault=unplug-after-rx%3D{after}").device("demo")
    with device.lease("test") as session, pytest.raises(TransportError):
        session.write_tree("/", given({"old.bin": b"new", "b": CONTENT, "c": CONTENT}))
    assert files_below(tmp_path)["old.bin"] == b"the old content"


def test_a_tree_that_breaks_while_it_is_put_in_place_is_put_there_all_the_same(
    inventory: Inventory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on the board then is verified: to take away what is not there yet would leave half of each tree."""

    def word_lost(link: BoardLink, placed: Sequence[StagedFile]) -> Conversation[None]:
        yield from place_all(link, placed)
        raise TransportTimeout("the board's word of it was lost")

    monkeypatch.setattr("fastflight.device.transfer.tree.place_all", word_lost)
    files = {f"{number:02}": b"new" for number in range(MAX_PATHS + 4)}
    for name in files:
        (tmp_path / name).write_bytes(b"old")
    with inventory.device("demo").lease("test") as session, pytest.raises(TransportTimeout):
        session.write_tree("/", given(files))
    assert files_below(tmp_path) == {"old.bin": b"the old content"} | files


@pytest.mark.parametrize("without", ["", "hashlib", "hashlib,binascii"], ids=["sha256", "crc32", "read back"])
def test_a_tree_of_which_the_board_kept_something_else_leaves_the_old_one(
    board: Callable[[str], Inventory], tmp_path: Path, without: str
) -> None:
    def spoiled() -> Iterator[tuple[str, list[bytes]]]:
        yield "old.bin", [b"new content"]
        yield "other.bin", [CONTENT]
        (part,) = (path for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes() == b"new content")
        part.write_bytes(b"new cantent")

    with board(f"without={without}").device("demo").lease("test") as session:
        with pytest.raises(ProtocolError, match="not what was sent"):
            session.write_tree("/", spoiled())
    assert files_below(tmp_path) == {"old.bin": b"the old content"}


def test_a_storage_without_room_for_both_gets_them_in_several_goes(
    board: Callable[[str], Inventory], tmp_path: Path
) -> None:
    old = {"a": bytes(9000), "b": bytes(9000)}
    for path, content in old.items():
        (tmp_path / path).write_bytes(content)
    with board("capacity=30000").device("demo").lease("test") as session:
        written = session.write_tree("/", given({"a": CONTENT[:9000], "b": CONTENT[1:9001]}))
        assert not written.at_once
    assert files_below(tmp_path) == {"old.bin": b"the old content", "a": CONTENT[:9000], "b": CONTENT[1:9001]}


def test_a_storage_without_room_for_one_is_full(board: Callable[[str], Inventory], tmp_path: Path) -> None:
    with board("capacity=15000").device("demo").lease("test") as session:
        with pytest.raises(DeviceFull):
            session.write_tree("/", given({"a": CONTENT, "b": CONTENT}))
        assert ".fastflight-part-1" not in files_below(tmp_path)
        assert session.exec("print(1)").stdout == b"1\r\n"


@pytest.mark.parametrize(
    ("files", "left"),
    [
        (["new/a", "new/b/c"], set()),
        # What is complete when the storage is full stays.
        (["small/a", "new/b/c"], {"small/a"}),
        (["here/new/c"], set()),
    ],
)
def test_folders_that_were_made_for_nothing_are_removed(
    board: Callable[[str], Inventory], tmp_path: Path, files: list[str], left: set[str]
) -> None:
    (tmp_path / "here").mkdir()
    contents = {path: b"small" if path.startswith("small") else bytes(20_000) for path in files}
    with board("capacity=15000").device("demo").lease("test") as session:
        with pytest.raises(DeviceFull):
            session.write_tree("/", given(contents))
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert found == {"old.bin", "here"} | left | {path.split("/")[0] for path in left}


@pytest.mark.parametrize("path", ["../up", "a/../../up", "", "."])
def test_paths_stay_below_the_folder(inventory: Inventory, path: str) -> None:
    with (
        inventory.device("demo").lease("test") as session,
        pytest.raises(RequestError, match="leads out of the folder"),
    ):
        session.write_tree("/app", [(path, [b"x"])])


def test_a_path_is_named_once(inventory: Inventory, tmp_path: Path) -> None:
    with inventory.device("demo").lease("test") as session, pytest.raises(RequestError, match="given twice"):
        session.write_tree("/", [("a", [b"x"]), ("/a", [b"y"])])
    assert files_below(tmp_path) == {"old.bin": b"the old content"}


def test_hashes_of_a_folder_that_is_not_there(inventory: Inventory) -> None:
    with inventory.device("demo").lease("test") as session, refused(FileMissing, where="demo:/none"):
        session.hashes("/none")


@pytest.mark.parametrize("path", [".fastflight-part", "a/.fastflight-part-1", ".fastflight-room-x"])
def test_names_of_parts_are_not_for_files(inventory: Inventory, tmp_path: Path, path: str) -> None:
    """The part of the first would be put in the place of the second's: a wrong file with the right name."""
    with inventory.device("demo").lease("test") as session:
        with pytest.raises(RequestError, match="another name"):
            session.write_tree("/", [(path, [b"one"]), ("x", [b"two"])])
        with pytest.raises(RequestError, match="another name"):
            session.write(f"/{path}", [b"one"])
        assert session.exec("print(1)").stdout == b"1\r\n"
    assert files_below(tmp_path) == {"old.bin": b"the old content"}
