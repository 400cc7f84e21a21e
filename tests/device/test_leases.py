"""One owner at a time: leases, programs that run, resets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from fastflight.concurrency import Shard, off_loop
from fastflight.concurrency.portal import Portal
from fastflight.device import Capabilities, Inventory
from fastflight.device.board import OpenBoard
from fastflight.device.device import Device
from fastflight.device.transfer.link import BoardLink
from fastflight.device.transfer.staging import StagedFile
from fastflight.errors import (
    BusyError,
    DeviceException,
    TransportClosed,
    TransportError,
    TransportTimeout,
    UnknownName,
)
from fastflight.own_code import ECHO
from fastflight.protocol import Send
from fastflight.transport import Port, parse_url
from tests.device.content import CONTENT
from tests.support.memory import Answer, Entry, HangUp, play
from tests.support.refusals import refused
from tests.support.waiting import read_until

SOON = 60.0


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


@pytest.mark.parametrize("own", [Device.alease, Device.aline])
def test_a_loop_that_ends_closes_a_lease_from_the_outside_in(inventory: Inventory, own: Callable[..., Any]) -> None:
    """It closes all asynchronous generators at once, so one within another would be closed too early."""
    device = inventory.device("demo")
    errors: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        await own(device, "a thread").__aenter__()
        await loop.shutdown_asyncgens()

    asyncio.run(main())
    assert (errors, device.holder) == ([], None)


async def test_a_cancelled_task_leaves_the_device_usable(inventory: Inventory) -> None:
    device = inventory.device("demo")

    async def endless(started: asyncio.Event) -> None:
        async with device.alease("endless") as session:
            async for _ in session.follow("while True: print('x')"):
                started.set()

    started = asyncio.Event()
    task = asyncio.create_task(endless(started))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with device.alease("next") as session:
        assert (await session.exec("print(1)")).stdout == b"1\r\n"


def test_a_lease_that_is_cancelled_at_any_moment_leaves_the_device_usable(inventory: Inventory) -> None:
    device = inventory.device("demo")

    async def short() -> None:
        async with device.alease("short") as session:
            await session.exec("print('short')")

    async def cancelled(turns: int) -> None:
        task = asyncio.create_task(short())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    for turns in (*range(12), *range(15, 300, 15)):
        asyncio.run(cancelled(turns))
        with device.lease("next") as session:
            assert session.exec("print('next')").stdout == b"next\r\n"
    assert device.outages == 0


def test_one_owner_at_a_time(inventory: Inventory) -> None:
    device = inventory.device("demo")
    with device.lease("the first"):
        assert device.holder == "the first"
        with pytest.raises(BusyError, match="in use by the first") as caught, device.lease("second", timeout=0.01):
            pass
        assert caught.value.holder == "the first"
    assert device.holder is None


def test_a_request_has_the_device_and_a_tool_has_its_line(inventory: Inventory) -> None:
    device = inventory.device("demo")
    assert not device.in_request
    with device.lease("a request"):
        assert device.in_request
    with device.line("a terminal"):
        assert device.holder == "a terminal" and not device.in_request


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


def test_a_board_that_cannot_say_what_it_can_do_is_left_at_its_prompt(board: Callable[[str], Inventory]) -> None:
    device = board("without=sys").device("demo")
    with refused(DeviceException, kind="ImportError"), device.lease("test"):
        pass
    with device.line("a person") as port:
        asyncio.run(port.awrite(b"1+1\r", SOON))
        read_until(lambda: asyncio.run(port.aread(SOON)), b"2\r\n>>> ")


def test_code_that_hangs_is_stopped_after_its_own_time(inventory: Inventory) -> None:
    with inventory.device("demo").lease("test") as session:
        with pytest.raises(TransportTimeout, match="demo: the code wrote nothing for 0.2 s and was stopped"):
            list(session.follow("while True: pass", timeout=0.2))
        assert session.exec("print(1)").stdout == b"1\r\n"


def test_code_that_prints_its_version_and_then_works_is_not_taken_for_a_reset(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastflight.device.board.RESTART_SECONDS", 0.01)
    code = "import sys, time\nprint(sys.version)\ntime.sleep(0.1)\nprint('done')"
    with inventory.device("demo").lease("test") as session:
        assert session.exec(code).stdout.endswith(b"\r\ndone\r\n")


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


class SlowlyOpenedPort:
    """A simulated board whose line opens when it is let."""

    url = "sim:"

    def __init__(self) -> None:
        self._board = parse_url("sim:?telemetry=0")
        self.asked, self.may = threading.Event(), threading.Event()

    async def aopen(self, timeout: float) -> Port:
        port = await self._board.aopen(timeout)
        self.asked.set()
        await off_loop(self.may.wait, SOON)
        return port

    def dispose(self) -> None:
        self._board.dispose()


def test_a_line_that_opens_once_its_device_is_closed_is_closed_again() -> None:
    """Its descriptors and its process, which every test looks for, are gone."""
    address, shard = SlowlyOpenedPort(), Shard().start()
    device = Device("demo", address, shard=shard)

    def lease() -> None:
        with device.lease("late"):
            raise AssertionError

    with ThreadPoolExecutor(1) as pool:
        leasing = pool.submit(lease)
        assert address.asked.wait(SOON)
        device.close()
        address.may.set()
        with pytest.raises(TransportClosed, match="demo: closed while the line was opened"):
            leasing.result(SOON)
    assert not device.is_open
    shard.close()


def test_an_unknown_device_names_the_nearest(inventory: Inventory) -> None:
    with pytest.raises(UnknownName, match="demmo: no such device. Did you mean 'demo'"):
        inventory.device("demmo")


def test_an_unknown_device_of_thousands_names_some() -> None:
    """Names of all of them would not fit into the header by which a client gets the error."""
    inventory = Inventory({f"board{number}": "sim:" for number in range(2000)})
    with inventory, pytest.raises(UnknownName) as failed:
        inventory.device("bord77")
    assert "Did you mean 'board77'? Known: board0, " in failed.value.hint
    assert failed.value.hint.endswith(" and 1950 more") and len(failed.value.hint) < 1000


def test_an_unplugged_board_is_an_error_and_comes_back(board: Callable[[str], Inventory], tmp_path: Path) -> None:
    (tmp_path / "big.bin").write_bytes(CONTENT)
    device = board("fault=exit-after-tx%3D5000").device("demo")
    with device.lease("test") as session, pytest.raises(TransportError, match="demo: .*Plug it in"):
        list(session.read("/big.bin"))
    assert not device.is_open
    with device.lease("test") as session:
        assert session.exec("print(1)").stdout == b"1\r\n"


def test_a_mending_that_is_broken_off_is_begun_anew() -> None:
    """What it had the board run still runs then: to take its answer for the next one's would be wrong."""
    board = OpenBoard(paste=True)
    board._link = BoardLink(board.repl, Capabilities(frozenset({"os.mkdir"})))
    board._staged.append(StagedFile("/x"))
    board.dirty = True
    token = f"001-{id(board.repl) & 0xFFFFFF:06x}"
    script: list[Entry] = [Send(b"\x03\x03\x01"), Answer(b"raw REPL; CTRL-B to exit\r\n>")]
    script += [Send(f"{ECHO.format(token=token)}\x04".encode()), Answer(f"OK{token}\x04\x04>".encode()), HangUp()]
    with pytest.raises(TransportClosed):
        play(board.mend(), script)
    assert board.dirty


class Stuck:
    """A port of a silent line that does not take its last bytes."""

    bytes_per_second = None

    def __init__(self) -> None:
        self.portal = Portal(asyncio.get_running_loop(), RuntimeError)

    async def aread(self, timeout: float) -> bytes:
        await asyncio.sleep(timeout)
        raise TransportTimeout("silent")

    async def alisten(self) -> None:
        await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        raise TransportTimeout("the device took no byte for 1 s")

    async def aclose(self) -> None:
        self.close()


class StuckAddress:
    url = "stuck:"
    disposed = False

    async def aopen(self, timeout: float) -> Port:
        return cast(Port, Stuck())

    def dispose(self) -> None:
        self.disposed = True


def test_a_device_is_closed_though_its_line_does_not_take_its_last_bytes() -> None:
    address = StuckAddress()
    device = Device("demo", address)
    reader = device.tap.reader()
    with device.line("a tool"):
        pass
    device.close()
    assert address.disposed
    assert reader.take(SOON) == []
    assert reader.ended


def test_what_ended_a_line_is_told_and_not_how_it_was_closed() -> None:
    device = Device("demo", StuckAddress())
    with pytest.raises(TransportClosed, match="it went away"), device.line("a tool"):
        raise TransportClosed("it went away")
    assert not device.is_open
    device.close()
