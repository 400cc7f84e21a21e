"""Device URLs: what they mean, and what is wrong with those that mean nothing."""

import pytest

from fastflight.errors import RequestError
from fastflight.transport import parse_url
from fastflight.transport.exec import ExecAddress
from fastflight.transport.serial import SerialAddress
from fastflight.transport.sim import SimAddress
from fastflight.transport.socket import SocketAddress


@pytest.mark.parametrize(
    ("url", "name", "baud"),
    [
        ("serial:///dev/ttyACM0?baud=921600", "/dev/ttyACM0", 921600),
        ("serial:///dev/ttyACM0", "/dev/ttyACM0", 115200),
        ("/dev/ttyACM0", "/dev/ttyACM0", 115200),
        ("COM7", "COM7", 115200),
        ("serial://COM7?baud=9600", "COM7", 9600),
        ("serial:///COM7", "COM7", 115200),
        ("serial:///dev/serial/by-id/usb%20board", "/dev/serial/by-id/usb board", 115200),
    ],
)
def test_serial_ports(url: str, name: str, baud: int) -> None:
    address = parse_url(url)
    assert address == SerialAddress(url, name, baud)


def test_serial_control_lines() -> None:
    address = parse_url("serial:///dev/ttyUSB0?dtr=0&rts=1")
    assert isinstance(address, SerialAddress)
    assert (address.dtr, address.rts) == (False, True)


def test_sockets() -> None:
    assert parse_url("socket://board.local:2218") == SocketAddress("socket://board.local:2218", "board.local", 2218)
    assert parse_url("socket://[::1]:2218") == SocketAddress("socket://[::1]:2218", "::1", 2218)


def test_commands_may_hold_anything() -> None:
    address = parse_url("exec:micropython -X heapsize=4M -c 'print(1 if x else 2)?' ?cwd=/tmp/board")
    assert isinstance(address, ExecAddress)
    assert (address.command, address.cwd) == ("micropython -X heapsize=4M -c 'print(1 if x else 2)?' ", "/tmp/board")
    address = parse_url("exec:what?now")
    assert isinstance(address, ExecAddress)
    assert (address.command, address.cwd) == ("what?now", None)


def test_the_simulated_board() -> None:
    address = parse_url("sim:?files=/data/b&baud=115200&fault=drop-rx%3D0.1&fault=flash-stall%3D5")
    assert isinstance(address, SimAddress)
    assert address.files == "/data/b"
    assert address.options == (("baud", "115200"), ("fault", "drop-rx=0.1"), ("fault", "flash-stall=5"))


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "unknown kind of device ''"),
        ("seriel:///dev/ttyACM0", "Did you mean 'serial'"),
        ("ttyACM0", "unknown kind of device 'ttyACM0'"),
        ("serial://", "the port's name is missing"),
        ("serial:///dev/ttyACM0?bauds=1", "unknown option 'bauds'.*Did you mean 'baud'"),
        ("serial:///dev/ttyACM0?baud=fast", "baud must be a whole number, not 'fast'"),
        ("serial:///dev/ttyACM0?baud=1&baud=2", "option 'baud' stands twice"),
        ("serial:///dev/ttyACM0?dtr=yes", "dtr must be 0 or 1"),
        ("socket://host", "host and port are both needed"),
        ("socket://host:99999", "out of range"),
        ("socket://host:1/path", "nothing may follow the port"),
        ("exec:", "the command is missing"),
        ("sim:board", "options follow a question mark"),
        ("sim:?speed=1", "unknown option 'speed'"),
        ("sim:?baud=-1", "baud must be a whole number"),
        ("sim:?baud", "cannot read the options"),
    ],
)
def test_what_is_wrong_is_said(url: str, text: str) -> None:
    with pytest.raises(RequestError, match=text) as caught:
        parse_url(url)
    assert repr(url) in str(caught.value)
