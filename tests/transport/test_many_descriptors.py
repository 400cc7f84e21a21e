"""Lines of a process that has more than 1024 descriptors, which `select` refuses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tty

import pytest

from fastflight.transport import parse_url

from .serial_bench import PATIENCE

resource = pytest.importorskip("resource", reason="Windows has no such limit")
pytest.importorskip("pty", reason="a serial port that is none")

BEYOND = 1024


@pytest.mark.parametrize("writer", ["asyncio", "thread"])
def test_a_serial_port_is_read_and_written_whatever_its_number(writer: str) -> None:
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
        port = parse_url(f"serial://{os.ttyname(theirs)}?writer={writer}").open(PATIENCE)
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
