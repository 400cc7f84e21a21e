"""mpremote, pyserial and serialx, unchanged from PyPI, through a bridge to a process, to boards and to a serial port.

The commands of a test run in one call, joined by `+`, where that does not change what is tested: each call costs the
start of a Python.
"""

from __future__ import annotations

import asyncio
import os
import random
import shlex
import subprocess
import sys
import termios
import tty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import serial
import serialx

from tests.support.bridged import bridged

CHILD = Path(__file__).with_name("unix_child.py")
CHILD_URL = f"exec:{shlex.join([sys.executable, '-I', '-S', str(CHILD)])}?cwd=/"
EVERY_BYTE = bytes(range(256))
KINDS = ("socket", "rfc2217")
# A test that hangs says which command it was, before the test itself is ended.
MPREMOTE_SECONDS = 50


def mpremote(url: str, *arguments: str, fails: bool = False, cwd: Path | None = None) -> str:
    """What it prints, with LF line ends; boards say CRLF, processes LF."""
    command = [sys.executable, "-m", "mpremote", "connect", url, *arguments]
    ended = subprocess.run(command, capture_output=True, timeout=MPREMOTE_SECONDS, check=False, cwd=cwd)
    said = (ended.stdout + ended.stderr).decode().replace("\r\n", "\n")
    assert bool(ended.returncode) is fails, said
    return said


@contextmanager
def board(device: str) -> Iterator[Mapping[str, str]]:
    with bridged(CHILD_URL if device == "process" else "sim:") as ports:
        yield ports


@pytest.mark.parametrize(("device", "kind"), [("process", "rfc2217"), ("simulator", "socket")])
def test_eval_exec_resume_and_soft_reset(device: str, kind: str) -> None:
    with board(device) as ports:
        url = ports[kind]
        assert mpremote(url, "exec", "x = 5; print('set')", "+", "eval", "x + 1") == "set\n6\n"
        assert mpremote(url, "resume", "eval", "x") == "5\n", "what one client left, the next one finds"
        reset = mpremote(url, "soft-reset", "+", "resume", "exec", "x", fails=True)
        assert "NameError" in reset
        assert mpremote(url, "eval", "1 + 1") == "2\n"


@pytest.mark.parametrize("device", ["process", "simulator"])
def test_code_that_fails_fails_mpremote(device: str) -> None:
    with board(device) as ports:
        assert "ZeroDivisionError" in mpremote(ports["socket"], "exec", "1/0", fails=True)


def test_sys_exit_in_a_process_is_a_soft_reset_to_mpremote() -> None:
    with board("process") as ports:
        mpremote(ports["socket"], "exec", "x = 1", "+", "exec", "import sys; sys.exit()")
        assert "NameError" in mpremote(ports["socket"], "resume", "exec", "x", fails=True)


def test_two_ports_of_one_bridge_reach_the_same_board() -> None:
    with board("simulator") as ports:
        mpremote(ports["rfc2217"], "exec", "x = 'one board'")
        assert mpremote(ports["socket"], "resume", "exec", "print(x)") == "one board\n"


def test_files_go_both_ways(tmp_path: Path) -> None:
    content = random.Random(4).randbytes(3000)
    (tmp_path / "there.bin").write_bytes(content)
    with board("simulator") as ports:
        copies = ["cp", "there.bin", ":copy.bin", "+", "ls", "+", "cp", ":copy.bin", "back.bin"]
        listing = mpremote(ports["rfc2217"], *copies, cwd=tmp_path)
        assert "3000 copy.bin" in listing
        assert (tmp_path / "back.bin").read_bytes() == content
        assert "3000 copy.bin" not in mpremote(ports["rfc2217"], "rm", ":copy.bin", "+", "ls")


@contextmanager
def serial_port() -> Iterator[tuple[int, int, Mapping[str, str]]]:
    """A serial port behind a bridge: what stands for its device, what for the port, and where tools connect to."""
    device, port = os.openpty()
    tty.setraw(port)
    try:
        with bridged(f"serial://{os.ttyname(port)}") as ports:
            yield device, port, ports
    finally:
        os.close(device)
        os.close(port)


# pyserial 3.5 starts its reader by calls that Python has given up.
@pytest.mark.filterwarnings("ignore:set(Daemon|Name):DeprecationWarning")
def test_pyserial_sets_the_speed_of_the_serial_port_behind() -> None:
    with (
        serial_port() as (device, port, ports),
        serial.serial_for_url(ports["rfc2217"], baudrate=9600, timeout=20) as client,
    ):
        assert termios.tcgetattr(port)[4:6] == [termios.B9600] * 2
        client.baudrate = 230400
        assert termios.tcgetattr(port)[4:6] == [termios.B230400] * 2
        client.dtr = client.rts = False
        assert (client.cts, client.dsr, client.cd, client.ri) == (True, True, True, False)  # a device that is ready
        client.write(b"there\xff")
        assert os.read(device, 6) == b"there\xff"
        os.write(device, b"back\xff")
        assert client.read(5) == b"back\xff"


def test_pyserials_raw_socket() -> None:
    with serial_port() as (device, _, ports), serial.serial_for_url(ports["socket"], timeout=20) as client:
        client.write(EVERY_BYTE)
        assert os.read(device, 1000) == EVERY_BYTE
        os.write(device, EVERY_BYTE)
        assert client.read(len(EVERY_BYTE)) == EVERY_BYTE


def test_serialx_sets_the_speed_of_the_serial_port_behind() -> None:
    with serial_port() as (device, port, ports), serialx.serial_for_url(ports["rfc2217"], baudrate=9600) as client:
        assert termios.tcgetattr(port)[4:6] == [termios.B9600] * 2
        client.reconfigure_port(baudrate=230400)
        assert termios.tcgetattr(port)[4:6] == [termios.B230400] * 2
        client.set_modem_pins(dtr=False, rts=False)
        assert client.get_modem_pins().cts is serialx.PinState.HIGH
        client.write(EVERY_BYTE)
        client.flush()
        assert os.read(device, 1000) == EVERY_BYTE
        os.write(device, EVERY_BYTE)
        assert client.readexactly(len(EVERY_BYTE)) == EVERY_BYTE


@pytest.mark.parametrize("kind", KINDS)
def test_serialxs_streams(kind: str) -> None:
    async def talk(device: int, url: str) -> None:
        reader, writer = await serialx.open_serial_connection(url, baudrate=9600)
        try:
            writer.write(EVERY_BYTE)
            await writer.drain()
            assert await asyncio.to_thread(os.read, device, 1000) == EVERY_BYTE
            os.write(device, EVERY_BYTE)
            assert await reader.readexactly(len(EVERY_BYTE)) == EVERY_BYTE
            if kind == "rfc2217":
                await writer.transport.set_modem_pins(dtr=False, rts=True)
                assert (await writer.transport.get_modem_pins()).dsr is serialx.PinState.HIGH
        finally:
            writer.close()
            await writer.wait_closed()

    with serial_port() as (device, port, ports):
        asyncio.run(talk(device, ports[kind]))


@pytest.mark.firmware
def test_a_mounted_folder_and_soft_reset_on_the_webassembly_vm(
    tmp_path: Path, webassembly_before_raw_paste: str
) -> None:
    # Not `cp`: it asks for a file that is not there, and does not know this VM's number for that (44).
    (tmp_path / "there.txt").write_text("from the host")
    read = "print(open('/remote/there.txt').read())"
    write = "f = open('/remote/back.txt', 'w'); f.write('from the board'); f.close()"
    with bridged(webassembly_before_raw_paste) as ports:
        for kind in KINDS:
            said = mpremote(ports[kind], "mount", ".", "exec", read, "+", "exec", write, cwd=tmp_path)
            assert "from the host\n" in said
            back = tmp_path / "back.txt"
            assert back.read_text() == "from the board"
            back.unlink()
            assert mpremote(ports[kind], "soft-reset", "+", "resume", "eval", "1 + 1") == "2\n"
            assert "tmp/" in mpremote(ports[kind], "resume", "ls")


@pytest.mark.firmware
def test_code_on_the_micro_bit(microbit: str) -> None:
    with bridged(microbit) as ports:
        for kind in KINDS:
            assert mpremote(ports[kind], "exec", "x = 6", "+", "eval", "x * 7") == "42\n"
            assert mpremote(ports[kind], "resume", "eval", "x") == "6\n"


@pytest.mark.firmware
def test_the_unix_port_behaves_as_a_board(tmp_path: Path, unix_port: str) -> None:
    with bridged(f"{unix_port}?cwd={tmp_path}") as ports:
        for kind in KINDS:
            assert mpremote(ports[kind], "exec", "x = 6", "+", "eval", "x * 7") == "42\n"
            assert mpremote(ports[kind], "resume", "eval", "x") == "6\n"
            assert "NameError" in mpremote(ports[kind], "soft-reset", "+", "resume", "exec", "x", fails=True)
