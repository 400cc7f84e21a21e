"""esptool, unchanged from PyPI, through a bridge to an ESP32 that is played: reset, speed and frames arrive as sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import pytest
from esptool.targets import ESP32ROM

from fastflight.bridge import Bridge, Ports
from fastflight.transport import LineSettings
from tests.bridge.rom_loader import REGISTER, SYNC, RomLoader


@contextmanager
def chip() -> Iterator[tuple[RomLoader, str]]:
    """A chip behind a bridge with a loop of its own, and where esptool finds it."""
    started: SimpleQueue[tuple[RomLoader, str]] = SimpleQueue()
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        rom = RomLoader()
        async with Bridge(rom.line, Ports(rfc2217=0)) as bridge:
            # As the documentation says: pyserial would wait for answers about lines that a reset leaves no time for.
            started.put((rom, f"rfc2217://127.0.0.1:{bridge.ports.rfc2217}?ign_set_control"))
            await stop.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    serving = threading.Thread(target=run, name="bridge in front of a chip")
    serving.start()
    try:
        yield started.get()
    finally:
        loop.call_soon_threadsafe(stop.set)
        serving.join()


# pyserial 3.5 starts its reader by calls that Python has given up.
@pytest.mark.filterwarnings("ignore:set(Daemon|Name):DeprecationWarning")
def test_esptool_resets_a_chip_into_its_loader_and_talks_to_it_at_another_speed() -> None:
    with chip() as (rom, url):
        tool = ESP32ROM(url, 115200)
        try:
            opened = len(rom.told)
            tool.connect(attempts=1)
            assert [told for told in rom.told[opened:] if isinstance(told, dict)] == [
                {"dtr": False},  # RTS is asserted since it was opened: the chip is in reset now
                {"dtr": True},  # the boot pin
                {"rts": False},  # out of reset, into the loader
                {"dtr": False},
            ]
            assert rom.packets[0] == bytes([0, SYNC, 36, 0, 0, 0, 0, 0, 7, 7, 0x12, 0x20]) + b"\x55" * 32
            assert tool.read_reg(0x3FF00000) == REGISTER
            tool._set_port_baudrate(921600)
            assert rom.settings == LineSettings(921600)
            assert tool.read_reg(0x3FF00000) == REGISTER
            before = len(rom.told)
            tool.hard_reset()
            assert rom.told[before:] == [{"rts": True}, {"rts": False}]
            assert not rom.loading
        finally:
            tool._port.close()
