"""Addresses that cannot be opened say why and what to do; the simulated board opens, answers and ends."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastflight.concurrency.shard import LOOPS
from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.transport import parse_url
from fastflight.transport.child import ChildPort
from fastflight.transport.sim import SimAddress
from fastflight.transport.socket import SocketPort
from tests.support.ports import open_port
from tests.support.waiting import until
from tests.transport.port_reading import PATIENCE, read_until


def test_a_serial_port_that_is_not_there() -> None:
    with pytest.raises(TransportError, match="cannot open the serial port. Check its name and the cable. Ports found"):
        open_port(parse_url("serial:///dev/no-such-port"), PATIENCE)


def test_a_serial_port_that_another_has() -> None:
    ours, theirs = os.openpty()
    address = parse_url(f"serial://{os.ttyname(theirs)}")
    first = open_port(address, PATIENCE)
    with pytest.raises(TransportError, match="Another program has it open"):
        open_port(address, PATIENCE)
    first.close()
    os.close(ours)
    os.close(theirs)


def test_a_socket_that_nobody_listens_on() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        for host in ("127.0.0.1", "localhost"):
            address = parse_url(f"socket://{host}:{holder.getsockname()[1]}")
            with pytest.raises(TransportError, match="cannot connect .Connection refused.*Check the address"):
                open_port(address, PATIENCE)
            with pytest.raises(TransportError, match="cannot connect .Connection refused.*Check the address"):
                asyncio.run(address.aopen(PATIENCE))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_socket_that_is_opened_on_a_loop(host: str) -> None:
    async def main() -> bytes:
        address = parse_url(f"socket://{host}:{listener.getsockname()[1]}?baud=9600")
        port = await address.aopen(PATIENCE)
        with listener.accept()[0] as peer:
            peer.sendall(b"hello")
        assert port.bytes_per_second == 960
        try:
            return await port.aread(PATIENCE)
        finally:
            await port.aclose()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert asyncio.run(main()) == b"hello"


async def test_opening_that_is_cancelled_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []

    async def never(_: object, stream: socket.socket, address: object) -> None:
        made.append(stream)
        await asyncio.Event().wait()

    address = parse_url("socket://127.0.0.1:9")
    monkeypatch.setattr(type(asyncio.get_running_loop()), "sock_connect", never)
    with pytest.raises(TransportTimeout, match="nothing answered within 0.01 s"):
        await address.aopen(0.01)
    assert [stream.fileno() for stream in made] == [-1]


def test_a_command_that_is_not_installed() -> None:
    address = parse_url("exec:no-such-command-anywhere")
    with pytest.raises(TransportError, match="cannot start the command .*installed and on PATH"):
        open_port(address, PATIENCE)
    address.dispose()


def test_a_command_that_cannot_be_read() -> None:
    address = parse_url("exec:micropython 'unclosed")
    with pytest.raises(TransportError, match="No closing quotation"):
        open_port(address, PATIENCE)
    address.dispose()


def test_a_child_runs_in_a_folder_of_its_own(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), flush=True)"
    for address, folder in (
        (parse_url(f'exec:{sys.executable} -c "{code}"'), "fastflight-exec-"),
        (parse_url(f'exec:{sys.executable} -c "{code}"?cwd={tmp_path}'), str(tmp_path)),
    ):
        port = open_port(address, PATIENCE)
        assert folder.encode() in read_until(port, b"\n")
        port.close()
        address.dispose()


def test_a_child_that_ends_closes_the_line() -> None:
    address = parse_url(f"exec:{sys.executable} -c pass")
    port = open_port(address, PATIENCE)
    with pytest.raises(TransportClosed):
        while True:
            port.read(PATIENCE)
    port.close()
    address.dispose()


def test_the_simulated_board_answers_and_keeps_its_files_between_openings() -> None:
    address = parse_url("sim:?telemetry=0")
    port = open_port(address, PATIENCE)
    port.write(b"\x01", PATIENCE)
    read_until(port, b"raw REPL; CTRL-B to exit\r\n>")
    port.write(b"f=open('/kept','w')\nf.write('yes')\nf.close()\x04", PATIENCE)
    read_until(port, b"\x04\x04>")
    port.close()
    port = open_port(address, PATIENCE)
    port.write(b"\x01", PATIENCE)
    read_until(port, b"raw REPL; CTRL-B to exit\r\n>")
    port.write(b"print(open('/kept').read())\x04", PATIENCE)
    assert read_until(port, b"\x04\x04>") == b"OKyes\r\n\x04\x04>"
    port.close()
    address.dispose()


def test_the_simulated_board_that_cannot_start_says_why() -> None:
    address = parse_url("sim:?fault=no-such-fault")
    with pytest.raises(TransportError, match="did not start .*no-such-fault"):
        open_port(address, PATIENCE)
    address.dispose()


@pytest.mark.skipif(sys.platform == "win32", reason="no terminal to run a command on")
async def test_a_command_that_does_not_want_to_end_holds_up_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastflight.transport.terminal.GRACE_SECONDS", 0.1)
    address = parse_url("exec:sh -c 'trap \"\" TERM HUP; echo up; while :; do sleep 1; done'")
    port = open_port(address, PATIENCE)
    assert isinstance(port.port, ChildPort)
    read_until(port, b"up\n")
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    await port.aclose()
    assert turns and port.process.returncode == -signal.SIGKILL
    address.dispose()


async def test_the_simulated_board_holds_up_no_loop_while_it_ends() -> None:
    address = parse_url("sim:?telemetry=0")
    port = open_port(address, PATIENCE)
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    await port.aclose()
    assert turns
    address.dispose()


def test_of_a_folder_that_the_simulated_board_cannot_have_nobody_else_is_told(tmp_path: Path) -> None:
    """What an error says reaches clients."""
    (tmp_path / "a file").write_bytes(b"")
    address = parse_url(f"sim:?files={tmp_path}/a%20file/folder")
    with pytest.raises(TransportError, match="did not start .*the folder of its files: Not a directory") as caught:
        open_port(address, PATIENCE)
    assert str(tmp_path) not in str(caught.value)


def test_only_who_shows_the_token_is_let_in() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, subprocess.Popen([sys.executable, "-c", ""]) as child:
        with (
            socket.create_connection(listener.getsockname()) as stranger,
            socket.create_connection(listener.getsockname()) as board,
        ):
            stranger.sendall(b"wrong-token\n")
            board.sendall(b"right-token\n")
            deadline = time.monotonic() + PATIENCE
            with SimAddress("sim:")._accept(listener, child, b"right-token\n", deadline) as accepted:
                assert accepted.getpeername() == board.getsockname()
                assert stranger.recv(1) == b""


def test_a_board_that_is_no_longer_wanted_while_it_starts_leaves_nothing() -> None:
    address = SimAddress("sim:")
    with ThreadPoolExecutor() as pool:
        opening = pool.submit(open_port, address, PATIENCE)
        until(lambda: address._folder)
        address.dispose()
        with contextlib.suppress(TransportClosed):  # unless it had started before
            opening.result().close()
    with pytest.raises(TransportClosed):
        open_port(address, PATIENCE)


@pytest.mark.parametrize("new_loop", LOOPS.values(), ids=LOOPS)
def test_a_simulated_board_whose_opening_is_cancelled_ends(
    monkeypatch: pytest.MonkeyPatch, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Not with an error about its socket: the caller would take that for a lost line, and open the board again."""
    ports: list[SocketPort] = []

    class CancelledMeanwhile(SocketPort):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            ports.append(self)
            opening.cancel()

    monkeypatch.setattr("fastflight.transport.sim.SocketPort", CancelledMeanwhile)
    address = SimAddress("sim:?telemetry=0")
    with asyncio.Runner(loop_factory=new_loop) as runner:
        opening = runner.get_loop().create_task(address.aopen(PATIENCE))
        with pytest.raises(asyncio.CancelledError):
            runner.run(asyncio.wait_for(opening, PATIENCE))
    [port] = ports
    assert port._keeper is not None and port._keeper.done()
    address.dispose()
