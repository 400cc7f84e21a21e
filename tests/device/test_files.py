"""Files and folders of the simulated board, both ways."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fastflight.device import AsyncSession, Inventory, Session, Transfer
from fastflight.device.transfer import staging
from fastflight.device.transfer.digest import RunningDigest
from fastflight.device.transfer.types import Method
from fastflight.errors import (
    DataError,
    DeviceError,
    DeviceException,
    DeviceFull,
    FastFlightError,
    FileMissing,
    ProtocolError,
    RequestError,
    TransportError,
    TransportTimeout,
)
from tests.device.content import CONTENT
from tests.support.refusals import refused


def test_files_both_ways(inventory: Inventory) -> None:
    with inventory.device("demo").lease("test") as session:
        written = session.write("/new.bin", [CONTENT[:5000], b"", CONTENT[5000:]])
        assert written.bytes == len(CONTENT)
        assert written.sha256 == hashlib.sha256(CONTENT).hexdigest()
        assert written.verified == "sha256"
        assert b"".join(session.read("/new.bin")) == CONTENT
        assert b"".join(session.read("/new.bin", limit=4096)) == CONTENT[:4096]
        assert session.hash("/new.bin") == ("sha256", written.sha256)
        assert session.stat("/new.bin").size == len(CONTENT)


def test_the_end_of_a_file_of_more_than_two_gigabytes(inventory: Inventory, tmp_path: Path) -> None:
    size = 2**31 + 3
    with (tmp_path / "large.bin").open("wb") as file:
        file.seek(size - 3)  # the zeros before it take no room
        file.write(b"end")
    with inventory.device("demo").lease("test") as session:
        assert session.stat("/large.bin").size == size
        assert b"".join(session.read("/large.bin", offset=size - 5)) == b"\0\0end"


@pytest.mark.parametrize(
    "without",
    ["hashlib", "sys.stdin", "hashlib,binascii.crc32", "hashlib,binascii", "sys.stdout.buffer,hashlib,binascii,struct"],
    ids=["crc32", "no binary input", "read back, base64", "read back, literals", "all text"],
)
def test_poorer_boards_go_down_the_ladder(board: Callable[[str], Inventory], without: str) -> None:
    with board(f"without={without}").device("demo").lease("test") as session:
        verified = {"hashlib": "crc32", "sys.stdin": "sha256"}.get(without, "read back")
        assert session.write("/new.bin", [CONTENT]).verified == verified
        assert b"".join(session.read("/new.bin")) == CONTENT


@pytest.mark.parametrize(
    "name", ["with space.csv", "quote'\".csv", "ünïcødé€.csv", "n" * 255, "tab\tnewline\n", "a{b}.c"]
)
def test_names_that_need_care(inventory: Inventory, name: str) -> None:
    with inventory.device("demo").lease("test") as session:
        session.write(f"/{name}", [b"x"])
        assert [entry.path for entry in session.list("/") if entry.path != "/old.bin"] == [f"/{name}"]
        assert b"".join(session.read(name)) == b"x"
        session.rename(f"/{name}", "/{plain}")
        session.remove("/{plain}")


def test_folders(inventory: Inventory) -> None:
    with inventory.device("demo").lease("test") as session:
        session.mkdir("/data")
        session.mkdir("/data/deep")
        session.write("/data/deep/b.csv", [b"b"])
        session.write("/data/a.csv", [b"aa"])
        found = session.list("/", recursive=True)
        assert [(entry.path, entry.kind, entry.size) for entry in found] == [
            ("/data", "folder", 0),
            ("/data/a.csv", "file", 2),
            ("/data/deep", "folder", 0),
            ("/data/deep/b.csv", "file", 1),
            ("/old.bin", "file", 15),
        ]
        assert found[1].modified is not None
        assert [entry.path for entry in session.list("/data/a.csv")] == ["/data/a.csv"]
        with pytest.raises(DeviceError, match="not empty"):
            session.remove("/data")
        session.remove("/data/deep/b.csv")
        session.remove("/data/deep")


@pytest.mark.parametrize(
    ("work", "kind", "text"),
    [
        (lambda s: s.stat("/none"), FileMissing, "demo:/none: no such file or folder"),
        (lambda s: list(s.read("/none")), FileMissing, "demo:/none"),
        (lambda s: s.list("/none"), FileMissing, "demo:/none"),
        (lambda s: s.hash("/none"), FileMissing, "demo:/none"),
        (lambda s: s.remove("/none"), FileMissing, "demo:/none"),
        (lambda s: s.rename("/none", "/x"), FileMissing, "demo:/none"),
        (lambda s: s.write("/none/x", [b"x"]), FileMissing, "demo:/none/x"),
        (lambda s: s.write("/", [b"x"]), RequestError, "the root folder"),
        (lambda s: s.write("/folder", [b"x"]), DeviceError, "it is a folder"),
        (lambda s: s.mkdir("/folder"), DeviceError, "exists already"),
        (lambda s: s.remove("/.."), RequestError, "the root folder"),
        (lambda s: s.stat("/a\0b"), RequestError, r"holds the character"),
        (lambda s: s.write("/" + "n" * 256, [b"x"]), DeviceError, "too long"),
        (lambda s: list(s.follow("1/0")), DeviceException, "raised ZeroDivisionError"),
    ],
)
def test_refusals_are_typed_and_leave_the_session_usable(
    inventory: Inventory, work: Callable[[Session], Any], kind: type[FastFlightError], text: str
) -> None:
    with inventory.device("demo").lease("test") as session:
        session.mkdir("/folder")
        with pytest.raises(kind, match=text):
            work(session)
        assert [entry.path for entry in session.list("/")] == ["/folder", "/old.bin"]
        assert b"".join(session.read("/old.bin")) == b"the old content"


def test_a_full_board_keeps_the_old_file_and_no_part(board: Callable[[str], Inventory]) -> None:
    with board("capacity=20000").device("demo").lease("test") as session:
        with refused(DeviceFull, where="demo:/old.bin"):
            session.write("/old.bin", [CONTENT] * 4)
        assert [entry.path for entry in session.list("/")] == ["/old.bin"]
        assert b"".join(session.read("/old.bin")) == b"the old content"


@pytest.mark.parametrize("method", ["binary", "literal"])
def test_a_file_for_which_there_is_no_room_is_refused_with_figures(
    board: Callable[[str], Inventory], tmp_path: Path, method: Method
) -> None:
    """Also where a broken write may go on later: what the board's program stores needs the room."""
    with board("capacity=20000").device("demo").lease("test") as session:
        for pieces, said in (
            ([bytes(21_000)], "needs 21,000 bytes or more, and [0-9,]+ are free"),
            ([CONTENT] * 4, "no space"),
        ):
            with pytest.raises(DeviceFull, match=said):
                session.write("/old.bin", pieces, keep=True, transfer=Transfer(method=method))
            assert [entry.path for entry in session.list("/")] == ["/old.bin"]


@pytest.mark.parametrize("method", ["binary", "base64"])
def test_a_file_whose_size_is_known_is_refused_before_it_is_sent(
    board: Callable[[str], Inventory], method: Method
) -> None:
    sent: list[bytes] = []

    def pieces() -> Iterator[bytes]:
        for _ in range(4):
            sent.append(CONTENT)
            yield CONTENT

    size = 4 * len(CONTENT)
    with board("capacity=20000").device("demo").lease("test") as session:
        with pytest.raises(DeviceFull, match=f"needs {size:,} bytes or more, and [0-9,]+ are free"):
            session.write("/old.bin", pieces(), keep=True, transfer=Transfer(method=method), size=size)
        assert len(sent) == 1
        assert [entry.path for entry in session.list("/")] == ["/old.bin"]


def test_the_part_of_an_earlier_write_makes_room(board: Callable[[str], Inventory], tmp_path: Path) -> None:
    (tmp_path / ".fastflight-part").write_bytes(bytes(12_000))
    with board("capacity=20000").device("demo").lease("test") as session:
        assert session.write("/new.bin", [bytes(15_000)]).bytes == 15_000


@pytest.mark.parametrize("kind", [DataError, TransportTimeout])
def test_content_that_fails_keeps_the_old_file_and_no_part(inventory: Inventory, kind: type[FastFlightError]) -> None:
    def failing() -> Iterator[bytes]:
        yield CONTENT
        raise kind("row 7 does not fit, or the board that it is read from is silent")

    with inventory.device("demo").lease("test") as session:
        with pytest.raises(kind, match="row 7"):
            session.write("/old.bin", failing())
        assert [entry.path for entry in session.list("/")] == ["/old.bin"]
        assert b"".join(session.read("/old.bin")) == b"the old content"


def test_the_sessions_agree() -> None:
    def public(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    # `awaitable` leads from the one to the other.
    assert public(Session) == {**public(AsyncSession), "awaitable": ["self"]}


def test_a_board_that_cannot_rename_tries_for_room_before_it_copies(
    board: Callable[[str], Inventory], tmp_path: Path
) -> None:
    with board("without=os.rename&capacity=25000").device("demo").lease("test") as session:
        with pytest.raises(DeviceFull):
            session.write("/old.bin", [CONTENT[:500], CONTENT, CONTENT[:3000]])
        assert [entry.path for entry in session.list("/")] == ["/old.bin"]
    assert (tmp_path / "old.bin").read_bytes() == b"the old content"


def test_a_new_file_on_a_board_that_cannot_rename_needs_room_for_itself_alone(
    board: Callable[[str], Inventory], tmp_path: Path
) -> None:
    big = CONTENT + CONTENT[:4000]
    with board("without=os.rename&capacity=25000").device("demo").lease("test") as session:
        with pytest.raises(DeviceFull, match="remove the old one first"):
            session.write("/old.bin", [big])
        written = session.write("/new.bin", [big])
        assert (written.bytes, written.verified) == (len(big), "sha256")
        assert b"".join(session.read("/new.bin")) == big
        tree = session.write_tree("/", iter([("a.bin", [CONTENT[:3000]]), ("b.bin", [CONTENT[:3000]])]))
        assert [path for path, _ in tree.files] == ["/a.bin", "/b.bin"]
        assert [entry.path for entry in session.list("/")] == ["/a.bin", "/b.bin", "/new.bin", "/old.bin"]
    assert (tmp_path / "old.bin").read_bytes() == b"the old content"


@pytest.mark.parametrize("without", ["os.rename", "os.rename,hashlib,binascii", "os.rename,sys.stdin"])
def test_a_new_file_that_fails_on_a_board_that_cannot_rename_is_removed(
    board: Callable[[str], Inventory], without: str
) -> None:
    def leaving() -> Iterator[bytes]:
        yield CONTENT[:3000]
        raise KeyboardInterrupt

    with board(f"without={without}&capacity=25000").device("demo").lease("test") as session:
        with pytest.raises(DeviceFull):
            session.write("/new.bin", [CONTENT, CONTENT, CONTENT])
        assert [entry.path for entry in session.list("/")] == ["/old.bin"]
        with pytest.raises(KeyboardInterrupt):
            session.write("/new.bin", leaving(), keep=True)
        assert session.part("/new.bin") is None
        assert [entry.path for entry in session.list("/")] == ["/old.bin"]
        with pytest.raises(FileMissing):
            session.write("/none/x", [b"x"])


@pytest.mark.parametrize("without", ["os.rename", "os.rename,sys.stdin", "os.rename,hashlib,binascii"])
def test_a_new_file_that_comes_wrong_on_a_board_that_cannot_rename_is_removed(
    board: Callable[[str], Inventory], monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    monkeypatch.setattr(RunningDigest, "hex", lambda self, algorithm: "00" * 32)
    with board(f"without={without}").device("demo").lease("test") as session:
        with pytest.raises(ProtocolError, match="is not what was sent"):
            session.write("/new.bin", [CONTENT])
        assert [entry.path for entry in session.list("/")] == ["/old.bin"]


def test_a_line_lost_in_a_new_file_on_a_board_that_cannot_rename_says_what_may_be_there(
    board: Callable[[str], Inventory],
) -> None:
    with pytest.raises(TransportError, match="a part of /new.bin may lie on the board: write it again, or remove it"):
        with board("without=os.rename&fault=unplug-after-rx%3D9000").device("demo").lease("test") as session:
            session.write("/new.bin", [CONTENT])


HANGS_ONCE = """\
import sys
if 'hung' not in sys.modules:
 sys.modules['hung']=True
 with open({path!r},'wb') as f:
  f.write(b'half of it')
 while True:
  pass
"""


def test_a_copy_that_breaks_off_is_done_again(
    board: Callable[[str], Inventory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "COPY", HANGS_ONCE + staging.COPY)
    monkeypatch.setattr(staging, "WRITE_SECONDS", 0.5)
    with board("without=os.rename,sys.stdin").device("demo").lease("test") as session:
        with pytest.raises(TransportError):
            session.write("/old.bin", [CONTENT])
        assert (tmp_path / "old.bin").read_bytes() == b"half of it"
        assert [entry.path for entry in session.list("/")] == ["/old.bin"]
    assert (tmp_path / "old.bin").read_bytes() == CONTENT
