"""Device URLs: what they mean, and what is wrong with those that mean nothing."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflight.errors import RequestError
from fastflight.transport import parse_url
from fastflight.transport.exec import ExecAddress
from fastflight.transport.identity import Identity
from fastflight.transport.pacing import DEFAULT, Pacing
from fastflight.transport.serial import SerialAddress
from fastflight.transport.sim import SimAddress
from fastflight.transport.socket import SocketAddress
from fastflight.transport.url import kind_of, public_url
from tests.support.ports import open_port


@pytest.mark.parametrize(
    ("url", "name", "baud"),
    [
        ("serial:///dev/ttyACM0?baud=921600", "/dev/ttyACM0", 921600),
        ("serial:///dev/ttyACM0", "/dev/ttyACM0", 115200),
        ("/dev/ttyACM0", "/dev/ttyACM0", 115200),
        ("COM7", "COM7", 115200),
        ("serial://COM7?baud=9600", "COM7", 9600),
        ("serial:///COM7", "COM7", 115200),
        ("serial:///dev/ttyUSB0?baud=9600&kind=lines", "/dev/ttyUSB0", 9600),
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


def test_a_serial_port_by_what_it_keeps() -> None:
    for url in (
        "serial:?serial_number=E66141&location=1-1.2:1.0",
        "serial:///?serial_number=E66141&location=1-1.2:1.0",
    ):
        address = parse_url(url)
        assert address == SerialAddress(url, "", wanted=Identity("E66141", "1-1.2:1.0"))


def test_how_a_serial_port_gathers_writes() -> None:
    address = parse_url("/dev/ttyACM0")
    assert isinstance(address, SerialAddress)
    assert address.pacing == DEFAULT
    address = parse_url("serial:///dev/ttyACM0?drain=512&drain_ms=0&chunk=256")
    assert isinstance(address, SerialAddress)
    assert address.pacing == Pacing(drain=512, drain_ms=0, chunk=256)


def test_a_socket_may_say_how_fast_the_line_behind_it_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.getsockname()[1]
        for options, speed in (("", None), ("?baud=115200", 11520.0)):
            port = open_port(parse_url(f"socket://127.0.0.1:{number}{options}"), 20.0)
            assert port.bytes_per_second == speed
            port.close()


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
        ("serial:///dev/ttyACM0?baud=1&baud=2", "option 'baud' is given twice"),
        ("serial:///dev/ttyACM0?dtr=yes", "dtr must be 0 or 1"),
        ("serial:///dev/ttyACM0?baud=0", "baud must be from 1 to 100000000, not 0"),
        ("serial:///dev/ttyACM0?drain=0", "drain must be from 1 to 65536, not 0"),
        ("serial:///dev/ttyACM0?drain_ms=5000", "drain_ms must be from 0 to 1000, not 5000"),
        ("serial:///dev/ttyACM0?chunk=1", "chunk must be from 16 to 65536, not 1"),
        ("serial:///dev/ttyACM0?chunk=1k", "chunk must be a whole number, not '1k'"),
        ("serial:///dev/ttyACM0?serial_number=E66141", "the port is named twice"),
        ("serial:?serial_number=", "the port's name is missing"),
        ("serial:?baud=9600", "the port's name is missing"),
        ("socket://host", "host and port are both needed"),
        ("socket://host:99999", "out of range"),
        ("socket://host:1/path", "only options may follow the port"),
        ("socket://host:1?baud=0", "baud must be from 1 to"),
        ("socket://host:1?bauds=9600", "unknown option 'bauds'.*Did you mean 'baud'"),
        ("socket://a..b:1", "the host name is not valid"),
        (f"rfc2217://{'a' * 70}:1", "the host name is not valid"),
        ("exec:", "the command is missing"),
        ("sim:?files=a%00b", "the folder name is not valid"),
        ("sim:board", "options follow a question mark"),
        ("sim:?speed=1", "unknown option 'speed'"),
        ("sim:?baud=-1", "baud must be a whole number"),
        ("sim:?baud", "cannot read the options"),
        ("sim:?kind=foo", "unknown kind 'foo'.*Known: lines, micropython"),
        ("exec:logger?kind=line", "unknown kind 'line'.*Did you mean 'lines'"),
        ("/dev/ttyUSB0?kind=", "unknown kind ''"),
        ("socket://host:1?kind=lines&kind=lines", "option 'kind' is given twice"),
        ("socket://host:1?knd=lines", "unknown option 'knd'.*Did you mean 'kind'"),
        ("sim:?seed=" + "7" * 1500, "seed must be a whole number"),
    ],
)
def test_what_is_wrong_is_said(url: str, text: str) -> None:
    with pytest.raises(RequestError, match=text) as caught:
        parse_url(url)
    assert repr(public_url(url)) in str(caught.value)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("/dev/ttyACM0", "/dev/ttyACM0"),
        ("COM7", "COM7"),
        ("serial:///dev/ttyACM0?baud=9600&dtr=0", "serial:///dev/ttyACM0?baud=9600&dtr=0"),
        ("serial:?serial_number=E66141&location=1-2", "serial:?serial_number=E66141&location=1-2"),
        ("socket://[::1]:2218?baud=9600", "socket://[::1]:2218?baud=9600"),
        ("exec:micropython", "exec:micropython"),
        ("exec:/home/ada/bin/micropython -X heapsize=4M --key hunter2", "exec:micropython"),
        ("exec:ssh -p 22 board?cwd=/home/hunter2", "exec:ssh"),
        ("exec:'/opt/my tools/run' hunter2", "exec:run"),
        ("exec:KEY=hunter2 run", "exec:KEY"),
        ("exec:logger --key hunter2?cwd=/home/hunter2&kind=lines", "exec:logger?kind=lines"),
        ("exec:fetch http://host/hunter2?a=1&kind=lines", "exec:fetch"),
        ("sim:?files=/home/hunter2&kind=lines", "sim:?kind=lines"),
        ("wss://host:443?password_file=/hunter2&kind=lines", "wss://host:443?kind=lines"),
        ("exec:run 'hunter2", "exec:run"),
        ("exec:", "exec:"),
        ("sim:?files=/home/hunter2&baud=115200&fault=reset", "sim:?baud=115200&fault=reset"),
        # What is refused is told no more of.
        ("socket://ada:hunter2@host:1", "socket://host:1"),
        ("rfc2217://ada:hunt@er2@host:1?key=hunter2&baud=1", "rfc2217://host:1?baud=1"),
        ("serial:///dev/ttyACM0?key=hunter2", "serial:///dev/ttyACM0"),
        ("exce:run --key hunter2", "exce:..."),
    ],
)
def test_what_may_be_told_of_a_url(url: str, told: str) -> None:
    assert public_url(url) == told == public_url(told)
    try:
        assert parse_url(url).url == told
    except RequestError as error:
        assert "hunter" not in str(error) and "hunt@" not in str(error)


@pytest.mark.parametrize(
    ("url", "same", "kind"),
    [
        ("/dev/ttyUSB0?kind=lines", "serial:///dev/ttyUSB0?kind=lines", "lines"),
        ("COM7?baud=9600&kind=lines", "serial://COM7?baud=9600&kind=lines", "lines"),
        ("socket://host:1?kind=micropython&baud=9600", "socket://host:1?kind=micropython&baud=9600", "micropython"),
        ("exec:logger 'a?b'?kind=lines", "exec:logger?kind=lines", "lines"),
        ("exec:logger?kind=lines&cwd=/data", "exec:logger?kind=lines", "lines"),
        ("exec:fetch http://host/?a=1&kind=lines", "exec:fetch", "unknown"),
        ("sim:?telemetry=10", "sim:?telemetry=10", "micropython"),
        ("sim:?kind=lines", "sim:?kind=lines", "lines"),
    ],
)
def test_any_url_may_say_what_the_device_is(url: str, same: str, kind: str) -> None:
    assert (parse_url(url).url, kind_of(same)) == (same, kind)


def test_the_kind_is_no_part_of_a_command() -> None:
    address = parse_url("exec:logger 'a?b'?cwd=/data&kind=lines")
    assert isinstance(address, ExecAddress)
    assert (address.command, address.cwd) == ("logger 'a?b'", "/data")


@pytest.mark.parametrize("scheme", ["socket", "rfc2217"])
def test_nobody_logs_in_on_the_way(scheme: str) -> None:
    with pytest.raises(RequestError, match="user names and passwords are not supported") as refused:
        parse_url(f"{scheme}://ada:hunter2@board.local:2218")
    assert "hunter2" not in str(refused.value)


@given(
    st.text(st.characters(exclude_characters="&="), max_size=40),
    st.sampled_from(["exec:run {} x", "exec:run?cwd={}", "sim:?files={}", "socket://a:{}@b:1"]),
)
def test_no_secret_is_told_wherever_it_stands(noise: str, where: str) -> None:
    url = where.format(f"{noise}hunter2")
    assert "hunter2" not in public_url(url)
    try:
        address = parse_url(url)
    except RequestError as error:
        assert "hunter2" not in str(error)
    else:
        assert "hunter2" not in address.url
