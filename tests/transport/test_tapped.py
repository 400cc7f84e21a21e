"""A tapped port is still the port, and its tap sees what crosses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastflight.errors import TransportClosed
from fastflight.transport import LineSettings, ModemLines, SerialControl
from fastflight.transport.chunk_buffer import Chunk
from fastflight.transport.tap import Tap
from fastflight.transport.tapped import tapped
from tests.support.refusals import refused
from tests.transport.peers import socket_peer

SOON = 10.0


def test_a_tapped_port_carries_the_same_bytes() -> None:
    tap = Tap()
    with socket_peer(echo=True) as address:
        port = tapped(address.open(SOON), tap)
        reader = tap.reader()

        async def main() -> None:
            await port.awrite(b"one", SOON)
            assert await port.aread(SOON) == b"one"

        asyncio.run(main())
        port.close()
    assert [(chunk.direction, chunk.data) for chunk in reader.rest() if isinstance(chunk, Chunk)] == [
        ("tx", b"one"),
        ("rx", b"one"),
    ]
    assert port.bytes_per_second is None
    assert not isinstance(port, SerialControl)


class SerialLine:
    """A port that is a serial line, as far as this test goes: it notes what it is told."""

    bytes_per_second = 11520.0
    settings = LineSettings()

    def __init__(self) -> None:
        self.told: list[object] = []

    async def aconfigure(self, settings: LineSettings, timeout: float) -> None:
        self.told.append(settings)

    async def aassign(self, timeout: float, **lines: bool | None) -> None:
        self.told.append({name: on for name, on in lines.items() if on is not None})

    async def apurge(self, timeout: float, *, received: bool = False, unsent: bool = False) -> None:
        self.told.append((received, unsent))

    async def amodem(self, timeout: float) -> ModemLines:
        return ModemLines(ri=True)

    async def adrain(self, timeout: float) -> None:
        self.told.append("drain")


def test_a_tapped_serial_line_can_still_be_controlled() -> None:
    line = SerialLine()
    port = tapped(line, Tap())  # type: ignore[arg-type]
    assert isinstance(port, SerialControl)
    assert port.settings == LineSettings()
    fast = LineSettings(baud=921600)

    async def again() -> None:
        await port.aconfigure(fast, SOON)
        await port.aassign(SOON, dtr=False)
        await port.apurge(SOON, received=True)
        assert await port.amodem(SOON) == ModemLines(ri=True)
        await port.adrain(SOON)

    asyncio.run(again())
    assert line.told == [fast, {"dtr": False}, (True, False), "drain"]


def test_a_guard_goes_before_each_write_and_each_control() -> None:
    def refuse() -> None:
        raise TransportClosed("this server does not own the device any more")

    line, tap = SerialLine(), Tap()
    port = tapped(line, tap, refuse)  # type: ignore[arg-type]
    assert isinstance(port, SerialControl)
    writes: list[Callable[[], object]] = [
        lambda: asyncio.run(port.aconfigure(LineSettings(), SOON)),
        lambda: asyncio.run(port.aassign(SOON, dtr=True)),
        lambda: asyncio.run(port.apurge(SOON, unsent=True)),
        lambda: asyncio.run(port.adrain(SOON)),
        lambda: port.awrite(b"late", SOON),
    ]
    for write in writes:
        with refused(TransportClosed):
            write()
    # The tap has not seen what was never sent.
    assert line.told == [] and tap.next_seq == 0
    assert asyncio.run(port.amodem(SOON)) == ModemLines(ri=True)
