"""A program that never reads its input is never sent more of it than a board can hold, so Ctrl-C always arrives."""

from __future__ import annotations

import pytest

from fastflight.device import Inventory
from fastflight.device.device import Device
from fastflight.errors import BusyError, TransportError
from fastflight.transport.tap import Chunk
from tests.support.bridged import bridged
from tests.support.chaos import ChaosProxy

from .conftest import Board

# The smallest receive buffer of a board holds 127 bytes; a tenth of them at most are unread.
MOST_BYTES = 16
TALKS = "import time\nwhile True:\n print('{\"celsius\": 21.5}')\n time.sleep_ms(50)\n"


def sent(device: Device) -> bytes:
    chunks = (each for each in device.tap.reader(seq=0).rest() if isinstance(each, Chunk))
    return b"".join(chunk.data for chunk in chunks if chunk.direction == "tx")


@pytest.mark.needs("main.py", "interrupts")
def test_requests_to_a_busy_board_leave_few_bytes(board: Board) -> None:
    with Inventory({"board": board.url}) as inventory:
        device = inventory.device("board")
        with device.lease("a test") as session:
            session.write("/main.py", [TALKS.encode()])
            session.soft_reset()
        before = len(sent(device))
        for _ in range(3):
            with pytest.raises(BusyError), device.lease("a test"):
                pass
        assert len(sent(device)) - before <= MOST_BYTES
        with device.lease("a test", interrupt=True) as session:
            assert session.exec("print(6 * 7)").stdout.strip() == b"42"
            session.remove("/main.py")


# In the code with which a request begins.
@pytest.mark.needs("raw paste")
@pytest.mark.parametrize("at", [130, 500])
def test_a_line_that_is_lost_while_the_board_receives_code_needs_no_interrupt(board: Board, at: int) -> None:
    with bridged(board.url) as ports:
        host, port = ports["socket"].removeprefix("socket://").split(":")
        with ChaosProxy(host, int(port), [f"cut:out@{at}"]) as proxy:
            with Inventory({"board": f"socket://{host}:{proxy.port}"}) as inventory:
                device = inventory.device("board")
                with pytest.raises(TransportError), device.lease("a test") as session:
                    session.list("/")
                with device.lease("a polite request") as session:
                    assert session.exec("print(6 * 7)").stdout.strip() == b"42"
