"""Ports that come back under another name are found by what they keep; ports that could be another's are not."""

from __future__ import annotations

import os
import tty
from dataclasses import dataclass
from pathlib import Path

import pytest
from serial.tools import list_ports

from fastflight.errors import TransportError
from fastflight.transport import parse_url
from fastflight.transport.identity import FoundPort, Identity, format_ports, identify, system_ports
from fastflight.transport.serial import SerialAddress
from tests.support.ports import open_port


@dataclass
class Port:
    device: str
    serial_number: str | None = None
    location: str | None = None


PICO = Port("/dev/ttyACM0", "E66141", "1-1.2:1.0")
PROBE = Port("/dev/ttyACM1", "0501", "1-1.3:1.0")
TARGET = Port("/dev/ttyACM2", "0501", "1-1.3:1.2")
CLONE = Port("/dev/ttyUSB0", "0001", "1-2")
OTHER_CLONE = Port("/dev/ttyUSB1", "0001", "1-3")
NAMELESS = Port("/dev/ttyUSB2", None, "1-4")
ONBOARD = Port("/dev/ttyS0")
ALL: list[FoundPort] = [PICO, PROBE, TARGET, CLONE, OTHER_CLONE, NAMELESS, ONBOARD]


@pytest.mark.parametrize("port", [PICO, PROBE, TARGET, CLONE, OTHER_CLONE, NAMELESS])
def test_every_usb_port_is_found_again_by_its_identity(port: Port) -> None:
    identity = identify(port.device, ALL)
    assert identity is not None
    renamed: list[FoundPort] = [Port(f"{each.device}9", each.serial_number, each.location) for each in ALL]
    assert identity.find(renamed) == f"{port.device}9"


@pytest.mark.parametrize("port", [PICO, PROBE, TARGET, CLONE, OTHER_CLONE, NAMELESS])
def test_another_port_is_never_taken_for_one_that_is_unplugged(port: Port) -> None:
    identity = identify(port.device, ALL)
    assert identity is not None
    assert identity.find([each for each in ALL if each is not port]) is None


def test_a_board_in_another_socket_is_found_by_its_number() -> None:
    identity = identify(PICO.device, ALL)
    assert identity == Identity("E66141", "1-1.2:1.0")
    assert identity.find([Port("/dev/ttyACM7", "E66141", "2-1:1.0"), PROBE]) == "/dev/ttyACM7"


def test_a_number_that_two_boards_have_says_nothing() -> None:
    assert identify(CLONE.device, ALL) == Identity(None, "1-2")
    assert Identity("0001").find(ALL) is None
    assert Identity("0001", "1-3").find(ALL) == "/dev/ttyUSB1"


def test_a_socket_may_be_named_without_the_interface() -> None:
    assert Identity(location="1-1.2").find(ALL) == "/dev/ttyACM0"
    assert Identity(location="1-1.3").find(ALL) is None  # two interfaces
    assert Identity(location="1-1.3:1.2").find(ALL) == "/dev/ttyACM2"


def test_a_port_that_is_not_usb_has_no_identity() -> None:
    assert identify(ONBOARD.device, ALL) is None
    assert identify("/dev/no-such-port", ALL) is None


def test_a_link_is_the_port_that_it_leads_to(tmp_path: Path) -> None:
    device = tmp_path / "ttyACM0"
    device.touch()
    link = tmp_path / "by-id"
    link.symlink_to(device)
    assert identify(str(link), [Port(str(device), "E66141")]) == Identity("E66141")


def test_the_ports_found_are_described() -> None:
    assert format_ports([]) == "none"
    assert format_ports([ONBOARD, PICO]) == "/dev/ttyACM0 (serial_number=E66141, location=1-1.2:1.0), /dev/ttyS0"


def test_the_system_is_asked_for_its_ports() -> None:
    assert all(port.device for port in system_ports())


def test_an_address_comes_back_under_another_name() -> None:
    address = SerialAddress("/dev/ttyACM0", "/dev/ttyACM0", ports=lambda: plugged)
    plugged: list[FoundPort] = [PICO, PROBE]
    again = address.identified()
    assert (again.wanted, again.url, again.baud) == (Identity("E66141", "1-1.2:1.0"), "/dev/ttyACM0", 115200)
    plugged.remove(PICO)
    assert again.missing().startswith("no single port here has serial_number=E66141")
    plugged.append(Port("/dev/ttyACM5", "E66141", "1-1.2:1.0"))
    assert again._present_name() == "/dev/ttyACM5"
    assert again.identified() is again


@pytest.mark.parametrize("port", [NAMELESS, PICO])
def test_a_socket_that_is_empty_does_not_hide_the_name_of_the_url(port: Port) -> None:
    here = list(ALL)
    address = SerialAddress(f"serial://{port.device}", port.device, ports=lambda: here).identified()
    here.remove(port)
    assert (address._find() == port.device) == (port is NAMELESS)
    here.append(Port(port.device, port.serial_number, "1-5:1.0"))
    assert address._find() == port.device


def test_an_address_by_identity_opens_what_has_it_now() -> None:
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    address = SerialAddress(
        "serial:?serial_number=E66141",
        "",
        wanted=Identity("E66141"),
        ports=lambda: [Port(os.ttyname(theirs), "E66141", "1-1")],
    )
    port = open_port(address, 20.0)
    os.write(ours, b"here")
    assert port.read(20.0) == b"here"
    port.close()
    os.close(ours)
    os.close(theirs)


def test_an_identity_that_is_not_here_is_answered_with_the_ports_that_are() -> None:
    parsed = parse_url("serial:?serial_number=E66142")
    assert isinstance(parsed, SerialAddress)
    address = SerialAddress(parsed.url, parsed.name, wanted=parsed.wanted, ports=lambda: [PICO])
    with pytest.raises(TransportError) as caught:
        open_port(address, 20.0)
    assert caught.value.what == "no single port here has serial_number=E66142"
    assert "/dev/ttyACM0 (serial_number=E66141, location=1-1.2:1.0)" in caught.value.hint


def test_a_port_that_is_pulled_as_the_ports_are_listed_is_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are gone while pyserial reads them: it takes nothing for a number then."""
    pulled = iter([True, True, False])

    def comports() -> list[Port]:
        if next(pulled, True):
            int(None, 16)  # type: ignore[call-overload]
        return [Port("/dev/ttyACM1")]

    monkeypatch.setattr(list_ports, "comports", comports)
    assert [port.device for port in system_ports()] == ["/dev/ttyACM1"]
    assert system_ports() == []
    with pytest.raises(TransportError, match="cannot open the serial port. .*Ports found here: none"):
        open_port(parse_url("serial:///dev/no-such-port"), 1)
