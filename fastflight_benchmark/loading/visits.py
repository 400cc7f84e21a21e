"""Visits by fastflight's client, pyserial and mpremote: connect, negotiate, enter the raw REPL, evaluate `1+1`, close.

Each function takes a URL and whether to soft-reset the board first. It raises an error if the answer is not 2. The
board is at its prompt, and all use the plain raw REPL. mpremote is a process, so its time includes Python's start.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import TypeVar

import serial

from fastflight.errors import DataError, ProtocolError, TransportError
from fastflight.protocol import Conversation, Output, RawRepl
from fastflight.transport import arun, parse_url, run

T = TypeVar("T")
Visit = Callable[[str, bool], None]

SYNC, ASYNC = OURS = ("fastflight sync", "fastflight async")
PYSERIAL, MPREMOTE = "pyserial", "mpremote"
CODE, ANSWER = b"print(1+1)", b"2"
SECONDS = 20.0


def sync(url: str, soft_reset: bool) -> None:
    """Use the transport and the raw REPL with blocking calls."""
    port = parse_url(url).open(SECONDS)
    try:
        _check(run(_evaluate(soft_reset), port, timeout=SECONDS))
    finally:
        port.close()


def asynchronous(runner: asyncio.Runner) -> Visit:
    """Return `sync` as coroutines on the loop of `runner`, which already runs."""

    async def visit(url: str, soft_reset: bool) -> None:
        port = await asyncio.to_thread(parse_url(url).open, SECONDS)
        try:
            _check(await arun(_evaluate(soft_reset), port, timeout=SECONDS))
        finally:
            await port.aclose()

    return lambda url, soft_reset: runner.run(visit(url, soft_reset))


def pyserial(url: str, soft_reset: bool) -> None:
    """Use pyserial with a minimal raw REPL."""
    with warnings.catch_warnings():
        # pyserial 3.5 starts its reader thread with deprecated methods.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            with serial.serial_for_url(url, baudrate=115200, timeout=SECONDS) as port:
                port.write(b"\r\x01")
                _until(port, b"raw REPL; CTRL-B to exit\r\n>")
                if soft_reset:
                    port.write(b"\x04")
                    _until(port, b"soft reboot\r\n")
                    _until(port, b"raw REPL; CTRL-B to exit\r\n>")
                port.write(CODE + b"\x04")
                answer = _until(port, b"\x04\x04>")
                port.write(b"\x02")
        except serial.SerialException as error:
            raise TransportError(f"pyserial: {error}", where=url) from error
    if not answer.startswith(b"OK" + ANSWER):
        raise ProtocolError(f"pyserial got {answer!r}")


def mpremote(url: str, soft_reset: bool) -> None:
    """Run the command `mpremote` in a process of its own."""
    resume = [] if soft_reset else ["resume"]
    output = started("-m", "mpremote", "connect", url, *resume, "eval", "1+1")
    if output.split() != [ANSWER]:
        raise ProtocolError(f"mpremote printed {output!r}")


def visits(runner: asyncio.Runner) -> Mapping[str, Visit]:
    """Return the function of each client, by its name."""
    return {
        SYNC: sync,
        ASYNC: asynchronous(runner),
        PYSERIAL: pyserial,
        MPREMOTE: mpremote,
    }


def started(*arguments: str) -> bytes:
    """Run another Python to its end and return its output. Raise `TransportError` if it fails."""
    try:
        ended = subprocess.run([sys.executable, *arguments], capture_output=True, timeout=SECONDS, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        error_text = ((error.stdout or b"") + (error.stderr or b"")).decode(errors="replace").strip()[-500:]
        raise TransportError(f"{' '.join(arguments)}: {error_text or error}") from error
    return ended.stdout


def _evaluate(soft_reset: bool) -> Conversation[Output]:
    repl = RawRepl(paste=False)
    yield from repl.enter()
    if soft_reset:
        yield from repl.soft_reset()
        # A booting board may not read its input yet, and may start a program.
        yield from repl.recover()
    output = yield from repl.execute(CODE, SECONDS)
    yield from repl.leave()
    return output


def _until(port: serial.SerialBase, end: bytes) -> bytes:
    data = port.read_until(end)
    if not data.endswith(end):
        raise serial.SerialException(f"received {data!r}, expected {end!r}")
    return bytes(data)


def _check(output: Output) -> None:
    if output.stdout.strip() != ANSWER or output.stderr:
        raise DataError(f"1+1 gave {output.stdout!r} {output.stderr!r}")
