"""Devices on the simulated board: files both ways, one owner at a time, faults that leave nothing half written."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fastflight.device import AsyncSession, Inventory, Session, upload
from fastflight.errors import (
    BusyError,
    DataError,
    DeviceError,
    DeviceException,
    DeviceFull,
    FastFlightError,
    FileMissing,
    RequestError,
    TransportError,
    TransportTimeout,
    UnknownName,
)

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Inventory]:
    (tmp_path / "old.bin").write_bytes(b"the old content")
    with Inventory({"demo": f"sim:?files={tmp_path}&telemetry=0"}) as opened:
        yield opened


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Callable[[str], Inventory]]:
    """Inventories with the simulated board started in a given way, closed at the end."""
    opened: list[Inventory] = []

    def start(options: str) -> Inventory:
        (tmp_path / "old.bin").write_bytes(b"the old content")
        opened.append(Inventory({"demo": f"sim:?files={tmp_path}&telemetry=0&{options}"}))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


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


def test_files_both_ways_on_a_loop(inventory: Inventory) -> None:
    async def main() -> None:
        async with inventory.device("demo").alease("test") as session:
            written = await session.write("/new.bin", pieces(CONTENT[:5000], b"", CONTENT[5000:]))
            assert (written.bytes, written.verified) == (len(CONTENT), "sha256")
            assert b"".join([piece async for piece in session.read("/new.bin")]) == CONTENT
            assert (await session.stat("/new.bin")).size == len(CONTENT)

    asyncio.run(main())


def test_the_device_changes_between_threads_and_loops(inventory: Inventory) -> None:
    device = inventory.device("demo")

    async def on_a_loop() -> bytes:
        async with device.alease("loop") as session:
            return (await session.exec("print('loop')")).stdout

    for _ in range(3):
        with device.lease("thread") as session:
            assert session.exec("print('thread')").stdout == b"thread\r\n"
        assert asyncio.run(on_a_loop()) == b"loop\r\n"


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
        with pytest.raises(DeviceFull, match="demo:/old.bin: no space left"):
            session.write("/old.bin", [CONTENT] * 4)
        assert [entry.path for entry in session.list("/")] == ["/old.bin"]
        assert b"".join(session.read("/old.bin")) == b"the old content"


def test_content_that_fails_keeps_the_old_file_and_no_part(inventory: Inventory) -> None:
    def failing() -> Iterator[bytes]:
        yield CONTENT
        raise DataError("row 7 does not fit")

    with inventory.device("demo").lease("test") as session:
        with pytest.raises(DataError):
            session.write("/old.bin", failing())
        assert [entry.path for entry in session.list("/")] == ["/old.bin"]
        assert b"".join(session.read("/old.bin")) == b"the old content"


def test_a_reader_who_leaves_early_leaves_the_device_usable(inventory: Inventory) -> None:
    device = inventory.device("demo")
    with device.lease("test") as session:
        session.write("/big.bin", [CONTENT * 20])
        reading = session.read("/big.bin")
        assert next(reading)
        reading.close()
        assert b"".join(session.read("/old.bin")) == b"the old content"
        endless = session.follow("while True: print('x')")
        assert next(endless)
        endless.close()
    with device.lease("next") as session:
        assert session.exec("print(1)").stdout == b"1\r\n"


def test_a_cancelled_task_leaves_the_device_usable(inventory: Inventory) -> None:
    device = inventory.device("demo")

    async def endless(started: asyncio.Event) -> None:
        async with device.alease("endless") as session:
            async for _ in session.follow("while True: print('x')"):
                started.set()

    async def main() -> None:
        started = asyncio.Event()
        task = asyncio.create_task(endless(started))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with device.alease("next") as session:
            assert (await session.exec("print(1)")).stdout == b"1\r\n"

    asyncio.run(main())


def test_one_owner_at_a_time(inventory: Inventory) -> None:
    device = inventory.device("demo")
    with device.lease("the first"):
        assert device.holder == "the first"
        with pytest.raises(BusyError, match="in use by the first") as caught, device.lease("second", timeout=0.01):
            pass
        assert caught.value.holder == "the first"
    assert device.holder is None


def test_owners_take_turns_between_threads_and_loops(inventory: Inventory) -> None:
    device = inventory.device("demo")
    outputs: list[bytes] = []

    def thread() -> None:
        for _ in range(5):
            with device.lease("thread") as session:
                outputs.append(session.exec("print('same')").stdout)

    async def loop() -> None:
        for _ in range(5):
            async with device.alease("loop") as session:
                outputs.append((await session.exec("print('same')")).stdout)

    threads = [threading.Thread(target=thread), threading.Thread(target=lambda: asyncio.run(loop()))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert outputs == [b"same\r\n"] * 10


def test_a_running_program_is_not_interrupted_unless_asked(board: Callable[[str], Inventory], tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import time\nwhile True:\n    time.sleep(0.01)\n")
    device = board("baud=0").device("demo")
    with pytest.raises(BusyError, match="demo: .*a program is running.*interrupt=true"), device.lease("polite"):
        pass
    with device.lease("rude", interrupt=True) as session:
        assert b"".join(session.read("/old.bin")) == b"the old content"
    with device.lease("polite") as session:
        assert session.exec("print(1)").stdout == b"1\r\n"


def test_a_program_that_prints_without_end_is_busy_too(board: Callable[[str], Inventory], tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import time\nwhile True:\n    print(1)\n    time.sleep(0.01)\n")
    device = board("baud=0").device("demo")
    with pytest.raises(BusyError, match="demo: .*a program is running"), device.lease("polite"):
        pass

    async def polite() -> None:
        async with device.alease("polite"):
            pass

    with pytest.raises(BusyError, match="demo: .*a program is running"):
        asyncio.run(polite())
    with device.lease("rude", interrupt=True) as session:
        assert session.exec("print(2)").stdout == b"2\r\n"


def test_code_that_hangs_is_stopped_after_its_own_time(inventory: Inventory) -> None:
    with inventory.device("demo").lease("test") as session:
        with pytest.raises(TransportTimeout, match="demo: .*sent nothing for 0.2 s"):
            list(session.follow("while True: pass", timeout=0.2))
        assert session.exec("print(1)").stdout == b"1\r\n"


def test_a_soft_reset_runs_main(board: Callable[[str], Inventory], tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("open('/ran', 'w').close()\n")
    device = board("baud=0").device("demo")
    with device.lease("test") as session:
        session.remove("/ran")
        session.soft_reset()
    with device.lease("test") as session:
        assert session.stat("/ran").size == 0


def test_a_hard_reset_loses_nothing_but_the_session(inventory: Inventory) -> None:
    device = inventory.device("demo")
    with device.lease("test") as session:
        session.exec("kept = 1")
        session.hard_reset()
    with device.lease("test") as session:
        assert b"NameError" in session.exec("kept").stderr
        assert b"".join(session.read("/old.bin")) == b"the old content"


def test_an_unknown_device_names_the_nearest(inventory: Inventory) -> None:
    with pytest.raises(UnknownName, match="demmo: no such device. Did you mean 'demo'"):
        inventory.device("demmo")


def test_an_unplugged_board_is_an_error_and_comes_back(board: Callable[[str], Inventory], tmp_path: Path) -> None:
    (tmp_path / "big.bin").write_bytes(CONTENT)
    device = board("fault=exit-after-tx%3D5000").device("demo")
    with device.lease("test") as session, pytest.raises(TransportError, match="demo: .*Plug it in"):
        list(session.read("/big.bin"))
    assert not device.is_open
    with device.lease("test") as session:
        assert session.exec("print(1)").stdout == b"1\r\n"


FAULTS = ["reset-after-rx", "reset-after-tx", "unplug-after-rx", "exit-after-tx"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("after", [3000, 5000, 8000, 14000])
def test_a_broken_write_never_leaves_a_wrong_file(
    board: Callable[[str], Inventory], tmp_path: Path, fault: str, after: int
) -> None:
    device = board(f"fault={fault}%3D{after // (10 if 'tx' in fault else 1)}").device("demo")
    try:
        with device.lease("test") as session:
            session.write("/old.bin", [CONTENT])
    except FastFlightError:
        assert (tmp_path / "old.bin").read_bytes() == b"the old content"
    else:
        assert (tmp_path / "old.bin").read_bytes() == CONTENT
    assert device.holder is None


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("after", [1200, 4000, 9000])
def test_a_broken_read_never_gives_wrong_bytes(
    board: Callable[[str], Inventory], tmp_path: Path, fault: str, after: int
) -> None:
    device = board(f"fault={fault}%3D{after}").device("demo")
    (tmp_path / "big.bin").write_bytes(CONTENT)
    received = b""
    try:
        with device.lease("test") as session:
            for piece in session.read("/big.bin"):
                received += piece
    except FastFlightError:
        assert CONTENT.startswith(received)
    else:
        assert received == CONTENT


def test_a_slow_line_with_a_small_ring_and_slow_flash_loses_nothing(
    board: Callable[[str], Inventory], tmp_path: Path
) -> None:
    device = board("baud=921600&ring=512&fault=flash-stall%3D3").device("demo")
    with device.lease("test") as session:
        assert session.write("/new.bin", [CONTENT]).bytes == len(CONTENT)
        assert b"".join(session.read("/new.bin")) == CONTENT
    assert (tmp_path / "new.bin").read_bytes() == CONTENT


def test_a_line_that_loses_bytes_is_noticed(board: Callable[[str], Inventory], tmp_path: Path) -> None:
    device = board("fault=drop-rx%3D0.001").device("demo")
    for _ in range(5):
        try:
            with device.lease("test") as session:
                session.write("/old.bin", [CONTENT])
        except FastFlightError:
            assert (tmp_path / "old.bin").read_bytes() in (b"the old content", CONTENT)
        else:
            assert (tmp_path / "old.bin").read_bytes() == CONTENT


def test_the_sessions_agree() -> None:
    def public(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert public(Session) == public(AsyncSession)


def test_a_board_that_cannot_rename_tries_for_room_before_it_copies(
    board: Callable[[str], Inventory], tmp_path: Path
) -> None:
    with board("without=os.rename&capacity=25000").device("demo").lease("test") as session:
        assert session.write("/new.bin", [CONTENT]).bytes == len(CONTENT)
        session.remove("/new.bin")
        with pytest.raises(DeviceFull):
            session.write("/old.bin", [CONTENT[:500], CONTENT, CONTENT[:3000]])
        assert [entry.path for entry in session.list("/")] == ["/old.bin"]
    assert (tmp_path / "old.bin").read_bytes() == b"the old content"


HANGS_ONCE = """\
try:
 hung
except NameError:
 hung=True
 with open({path!r},'wb') as f:
  f.write(b'half of it')
 while True:
  pass
"""


def test_a_copy_that_breaks_off_is_done_again(
    board: Callable[[str], Inventory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "COPY", HANGS_ONCE + upload.COPY)
    monkeypatch.setattr(upload, "WRITE_SECONDS", 0.5)
    with board("without=os.rename").device("demo").lease("test") as session:
        with pytest.raises(TransportError):
            session.write("/old.bin", [CONTENT])
        assert (tmp_path / "old.bin").read_bytes() == b"half of it"
        assert [entry.path for entry in session.list("/")] == ["/old.bin"]
    assert (tmp_path / "old.bin").read_bytes() == CONTENT
