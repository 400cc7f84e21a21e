"""The real targets start, answer and go away, and say what is missing when they cannot."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import targets

# Real firmware on a loaded machine: far above what an answer takes.
ANSWER_SECONDS = 20.0


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    host, _, port = url.removeprefix("socket://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS) as line:
        yield line


@contextmanager
def child(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command of an `exec:` URL on pipes, which no more cook bytes than a raw terminal does."""
    command = shlex.split(url.removeprefix("exec:"))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            yield process
        finally:
            process.kill()


def say(line: socket.socket | subprocess.Popen[bytes], data: bytes, until: bytes) -> bytes:
    """Send, then read up to `until`. The test's own time limit ends a wait for bytes that never come."""
    receive: Callable[[int], bytes]
    if isinstance(line, subprocess.Popen):
        assert line.stdin and line.stdout
        line.stdin.write(data)
        receive = line.stdout.read
    else:
        line.sendall(data)
        receive = line.recv
    heard = b""
    while not heard.endswith(until):
        piece = receive(1)
        assert piece, f"closed after {heard!r}"
        heard += piece
    return heard


RAW = b"raw REPL; CTRL-B to exit\r\n>"
DONE = b"\x04>"


@pytest.mark.firmware
def test_the_microbit_runs_code_in_its_raw_repl(microbit: str) -> None:
    with connected(microbit) as line:
        say(line, b"\r\x01", RAW)
        assert say(line, b"print(6*7)\x04", DONE) == b"OK42\r\n\x04\x04>"
        assert b"nRF51822" in say(line, b"import os;print(os.uname())\x04", DONE)


@pytest.mark.firmware
def test_the_microbit_keeps_its_files_over_a_reconnect_and_a_soft_reset(microbit: str) -> None:
    with connected(microbit) as line:
        say(line, b"\r\x01", RAW)
        say(line, b"f=open('a','wb');f.write(b'kept');f.close()\x04", DONE)
        assert say(line, b"\x04", RAW) == b"OK\r\nsoft reboot\r\n" + RAW
    with connected(microbit) as line:
        assert say(line, b"print(open('a').read())\x04", DONE) == b"OKkept\r\n\x04\x04>"


@pytest.mark.firmware
def test_two_microbits_are_two_boards(microbit: str) -> None:
    with targets.microbit() as second:
        assert second != microbit
        with connected(second) as line:
            say(line, b"\r\x01", RAW)
            say(line, b"open('only-here','w').close()\x04", DONE)
        with connected(microbit) as line:
            say(line, b"\r\x01", RAW)
            assert say(line, b"import os;print(os.listdir())\x04", DONE) == b"OK[]\r\n\x04\x04>"


@pytest.mark.firmware
def test_the_microbit_is_gone_after_its_block() -> None:
    try:
        with targets.microbit() as url:
            pass
    except targets.TargetMissing as missing:
        pytest.skip(str(missing))
    with pytest.raises(ConnectionRefusedError), connected(url):
        pass


@pytest.mark.firmware
def test_the_vm_in_webassembly_passes_every_byte_both_ways(webassembly: str) -> None:
    every = bytes(range(256))
    with child(webassembly) as board:
        say(board, b"\r\x01", RAW)
        code = b"import sys;b=sys.stdin.buffer.read(256);sys.stdout.buffer.write(b)\x04"
        say(board, code, b"OK")
        assert say(board, every, DONE) == every + b"\x04\x04>"


@pytest.mark.firmware
def test_the_vm_in_webassembly_starts_again_on_soft_reset_with_its_files(webassembly: str) -> None:
    with child(webassembly) as board:
        say(board, b"\r\x01", RAW)
        say(board, b"x=1;f=open('/a','w');f.write('kept');f.close()\x04", DONE)
        assert say(board, b"\x04", RAW) == b"OK\r\nMPY: soft reboot\r\n" + RAW
        assert say(board, b"print(open('/a').read())\x04", DONE) == b"OKkept\n\x04\x04>"
        assert b"NameError" in say(board, b"x\x04", DONE)
        assert say(board, b"raise SystemExit\x04", RAW) == b"OK\x04\x04MPY: soft reboot\r\n" + RAW


@pytest.mark.firmware
def test_the_vm_in_webassembly_ends_with_its_input(webassembly: str) -> None:
    with child(webassembly) as board:
        say(board, b"", b">>> ")
        assert board.stdin
        board.stdin.close()
        assert board.wait(ANSWER_SECONDS) == 0


@pytest.mark.firmware
def test_raw_paste_is_announced_by_the_vm_and_refused_by_the_driver_if_so_told(
    webassembly: str, webassembly_without_raw_paste: str
) -> None:
    with child(webassembly) as board:
        say(board, b"\r\x01", RAW)
        assert say(board, b"\x05A\x01", b"\x04") == b"R\x01\x80\x00\x01\x04"
    with child(webassembly_without_raw_paste) as board:
        say(board, b"\r\x01", RAW)
        assert say(board, b"\x05A\x01", b">") == b"R\x00>"
        assert say(board, b"print('\x05A')\x04", DONE) == b"OK\x05A\n\x04\x04>"


def test_a_missing_program_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(targets.TargetMissing, match=r"qemu-system-arm is not on PATH.*apt-get install"):
        targets.microbit().__enter__()
    with pytest.raises(targets.TargetMissing, match="node is not on PATH"):
        targets.webassembly().__enter__()
    with pytest.raises(targets.TargetMissing, match="micropython is not on PATH"):
        targets.unix_port().__enter__()


def fake_program(folder: Path, name: str, script: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_missing_firmware_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_program(tmp_path, "qemu-system-arm", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(targets.TargetMissing, match=re.escape("absent.hex is not installed")):
        targets.microbit(tmp_path / "absent.hex").__enter__()


def test_an_emulator_that_ends_at_once_is_broken_and_not_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_program(tmp_path, "qemu-system-arm", "echo no such machine >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    firmware = tmp_path / "firmware.hex"
    firmware.touch()
    with pytest.raises(targets.TargetBroken, match="no such machine"):
        targets.microbit(firmware).__enter__()


def test_the_npm_package_is_looked_up_in_the_environment_and_then_in_the_repository(tmp_path: Path) -> None:
    source = tmp_path / "tests" / "support" / "targets.py"
    assert targets.webassembly_package({}, source) is None
    installed = tmp_path / targets.INSTALLED_PACKAGE
    installed.mkdir(parents=True)
    assert targets.webassembly_package({}, source) == installed
    assert targets.webassembly_package({targets.PACKAGE_VARIABLE: "/elsewhere"}, source) == Path("/elsewhere")


def test_paths_with_spaces_and_quotes_are_one_word_of_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "it's a package"
    package.mkdir()
    fake_program(tmp_path, "node", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(targets.TargetMissing, match="does not hold it"):
        targets.webassembly(package=package).__enter__()
    (package / "micropython.mjs").touch()
    with targets.webassembly(package=package, heap_bytes=65536, refuse_raw_paste=True) as url:
        words = shlex.split(url.removeprefix("exec:"))
    assert words[1:] == [str(targets.DRIVER), str(package), "65536", "refuse-raw-paste"]
