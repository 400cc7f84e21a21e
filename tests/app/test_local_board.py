"""Which of this computer's serial ports is the board that a command without a server means."""

from __future__ import annotations

import pytest
from serial.tools.list_ports_common import ListPortInfo

from fastflight.app.local_board import find_board
from fastflight.errors import TransportError


def port(name: str, vid: int | None) -> ListPortInfo:
    found = ListPortInfo(name)
    found.vid = vid
    return found


def test_the_only_usb_device_is_the_board() -> None:
    assert find_board([port("/dev/ttyS0", None), port("/dev/ttyACM0", 0x2E8A)]) == "/dev/ttyACM0"


def test_a_port_without_usb_is_no_board() -> None:
    with pytest.raises(TransportError) as raised:
        find_board([port("/dev/ttyS0", None)])
    assert "--device" in raised.value.hint


def test_of_several_boards_none_is_taken() -> None:
    with pytest.raises(TransportError) as raised:
        find_board([port("/dev/ttyACM1", 1), port("/dev/ttyACM0", 1)])
    assert "/dev/ttyACM0" in str(raised.value)
    assert "/dev/ttyACM1" in str(raised.value)
    assert "--device /dev/ttyACM0" in raised.value.hint
