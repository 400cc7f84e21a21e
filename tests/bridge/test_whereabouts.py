"""Opening a device wherever it is now."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from fastflight.bridge.whereabouts import Movable, Whereabouts
from fastflight.errors import TransportClosed
from fastflight.transport import Address, Port
from fastflight.transport.serial import SerialAddress
from fastflight.transport.socket import SocketAddress


@dataclass
class Computer:
    """Which identity is at which name, and what was opened."""

    ports: dict[str, str] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FakeSerial:
    computer: Computer
    name: str
    url: str = "serial:a"

    async def aopen(self, timeout: float) -> Port:
        self.computer.opened.append(self.name)
        return None  # type: ignore[return-value]

    def open(self, timeout: float) -> Port:
        raise NotImplementedError

    def dispose(self) -> None:
        pass

    def identity(self) -> str | None:
        return self.computer.ports.get(self.name)

    def find(self, identity: str) -> str | None:
        return next((name for name, found in self.computer.ports.items() if found == identity), None)

    def at(self, name: str) -> Address:
        return replace(self, name=name)


def test_opens_the_same_device_under_its_new_name() -> None:
    computer = Computer({"a": "E66141"})
    place = Whereabouts(FakeSerial(computer, "a"))
    asyncio.run(place.aopen(1))
    computer.ports = {"a": "another board", "b": "E66141"}
    asyncio.run(place.aopen(1))
    assert computer.opened == ["a", "b"]


def test_another_board_under_the_old_name_is_not_taken_for_it() -> None:
    computer = Computer({"a": "E66141"})
    place = Whereabouts(FakeSerial(computer, "a"))
    asyncio.run(place.aopen(1))
    computer.ports = {"a": "another board"}
    with pytest.raises(TransportClosed, match="E66141 is not there"):
        asyncio.run(place.aopen(1))
    computer.ports = {"a": "E66141"}
    asyncio.run(place.aopen(1))
    assert computer.opened == ["a", "a"]


def test_a_port_without_an_identity_is_opened_by_its_name() -> None:
    computer = Computer()
    place = Whereabouts(FakeSerial(computer, "a"))
    asyncio.run(place.aopen(1))
    asyncio.run(place.aopen(1))
    assert computer.opened == ["a", "a"]


def test_a_serial_address_is_one_that_moves_and_a_socket_is_not() -> None:
    assert isinstance(SerialAddress("/dev/ttyACM0", "/dev/ttyACM0"), Movable)
    assert not isinstance(SocketAddress("socket://h:1", "h", 1), Movable)
