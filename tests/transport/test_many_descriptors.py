"""Lines of a process that has more than 1024 descriptors, which `select` refuses."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import tty

import pytest

from fastflight.errors import TransportError
from fastflight.transport import parse_url
from tests.support.ports import open_port

from .serial_bench import PATIENCE

resource = pytest.importorskip("resource", reason="Windows has no such limit")
pytest.importorskip("pty", reason="a serial port that is none")

BEYOND = 1024


def test_a_serial_port_is_read_and_written_whatever_its_number() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < BEYOND + 100:
        pytest.skip("this process may not have as many")
    with contextlib.ExitStack() as stack:
        ours, theirs = os.openpty()
        tty.setraw(theirs)
        stack.callback(os.close, ours)
        stack.callback(os.close, theirs)
        while True:
            number = os.dup(ours)
            stack.callback(os.close, number)
            if number >= BEYOND:
                break
        port = open_port(parse_url(f"serial://{os.ttyname(theirs)}"), PATIENCE)
        try:
            port.write(b"ping", PATIENCE)
            assert os.read(ours, 10) == b"ping"
            os.write(ours, b"pong")
            assert port.read(PATIENCE) == b"pong"

            async def aio() -> bytes:
                await port.awrite(b"ping", PATIENCE)
                await port.adrain(PATIENCE)
                os.write(ours, b"again")
                return await port.aread(PATIENCE)

            assert asyncio.run(aio()) in (b"again", b"a")
        finally:
            port.close()


@pytest.mark.parametrize("url", ["sim:?telemetry=0", "exec:sleep 60"])
def test_a_device_that_finds_no_descriptor_left_says_so_and_leaves_nothing(url: str) -> None:
    """Whichever of those that it needs is missing. Who listens to it tries again, as after any loss of the line."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    address = parse_url(url)
    open_port(address, PATIENCE).close()  # what is made once is there
    opened = refused = 0
    while not opened:
        used = {int(name) for name in os.listdir("/dev/fd")}
        free = (number for number in range(soft) if number not in used)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next(itertools.islice(free, refused, None)), hard))
        try:
            port = open_port(address, PATIENCE)
        except TransportError:
            refused += 1
        else:
            opened += 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    port.close()
    address.dispose()
    assert refused
