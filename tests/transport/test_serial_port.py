"""Control of a serial line."""

from __future__ import annotations

import asyncio
import os
import threading
import tty
from collections.abc import Awaitable, Callable

import pytest
import serial
import serial_asyncio

from fastflight.errors import TransportClosed, TransportError
from fastflight.transport import LineSettings, SerialControl, parse_url
from fastflight.transport.serial import SerialAddress
from fastflight.transport.serial_lines import Lines
from tests.support.ports import open_port
from tests.support.waiting import until

from .serial_bench import PATIENCE, SHORT, SerialBench, alone, awaited


def test_a_serial_port_is_a_serial_control(bench: SerialBench) -> None:
    assert isinstance(bench.port.port, SerialControl)
    assert bench.port.settings == LineSettings(115200, 8, "N", 1)
    assert bench.port.bytes_per_second == 11520


def test_a_new_speed_is_the_lines_speed(bench: SerialBench) -> None:
    asyncio.run(bench.port.aconfigure(LineSettings(9600), PATIENCE))
    assert bench.port.settings == LineSettings(9600)
    assert bench.port.bytes_per_second == 960
    asyncio.run(bench.port.aconfigure(LineSettings(921600, stop_bits=2), PATIENCE))
    assert bench.port.bytes_per_second == pytest.approx(921600 / 11)


def test_what_was_gathered_goes_before_the_line_changes(bench: SerialBench) -> None:
    async def main() -> None:
        await bench.port.awrite(b"old speed", PATIENCE)
        await bench.port.aconfigure(LineSettings(9600), PATIENCE)
        assert bench.get(9) == b"old speed"

    alone(main())


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (LineSettings(data_bits=7), "cannot drive the line as 115200 baud, 7N1"),
        (LineSettings(parity="E"), "cannot drive the line as 115200 baud, 8E1"),
        (LineSettings(data_bits=9), "cannot drive the line as 115200 baud, 9N1"),
        (LineSettings(baud=0), "cannot run at 0 baud"),
        (LineSettings(baud=(1 << 32) - 1), "cannot drive the line as 4294967295 baud"),
    ],
)
def test_settings_that_the_port_cannot_do_change_nothing(bench: SerialBench, settings: LineSettings, text: str) -> None:
    """A pseudo-terminal carries eight bits without parity."""
    with pytest.raises(TransportError, match=text):
        asyncio.run(bench.port.aconfigure(settings, PATIENCE))
    assert bench.port.settings == LineSettings()


def test_a_port_without_control_lines_says_so(bench: SerialBench) -> None:
    with pytest.raises(TransportError, match="the port has no DTR to set"):
        asyncio.run(bench.port.aassign(PATIENCE, dtr=True))
    with pytest.raises(TransportError, match="the port has no RTS to set"):
        asyncio.run(bench.port.aassign(PATIENCE, dtr=False, rts=True))
    with pytest.raises(TransportError, match="the port has no modem lines"):
        asyncio.run(bench.port.amodem(PATIENCE))


def test_received_bytes_can_be_thrown_away(bench: SerialBench) -> None:
    def old_bytes() -> None:
        bench.give(b"old")
        until(lambda: b"".join(bench.port._received) == b"old")

    async def main() -> None:
        for word in (b"first", b"second"):
            bench.give(word)
            assert await bench.port.aread(PATIENCE) == word
            old_bytes()
            await bench.port.apurge(PATIENCE, received=True)

    alone(main())
    old_bytes()
    asyncio.run(bench.port.apurge(PATIENCE, received=True))
    bench.give(b"third")
    assert bench.port.read(PATIENCE) == b"third"


def test_a_closed_port_cannot_be_controlled(bench: SerialBench) -> None:
    bench.port.close()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: bench.port.aconfigure(LineSettings(9600), SHORT),
        lambda: bench.port.aassign(SHORT, dtr=True),
        lambda: bench.port.apurge(SHORT, received=True, unsent=True),
        lambda: bench.port.amodem(SHORT),
    ]
    for call in calls:
        with pytest.raises(TransportClosed, match="closed on this side"):
            asyncio.run(awaited(call))


async def test_a_coroutine_gets_the_streams_of_pyserial_asyncio() -> None:
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    address = parse_url(f"serial:{os.ttyname(theirs)}?baud=9600")
    assert isinstance(address, SerialAddress)
    reader, writer = await address.aopen_streams()
    assert isinstance(writer.transport, serial_asyncio.SerialTransport)
    assert writer.transport.serial.baudrate == 9600
    writer.write(b"question")
    await writer.drain()
    assert await asyncio.to_thread(os.read, ours, 8) == b"question"
    os.write(ours, b"answer")
    assert await reader.readexactly(6) == b"answer"
    with pytest.raises(TransportError, match="Another program has it open"):
        await address.aopen_streams()
    writer.close()
    await writer.wait_closed()
    assert not writer.transport.serial
    os.close(ours)
    os.close(theirs)


async def test_a_cancelled_call_does_not_leave_settings_on_their_way(
    bench: SerialBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the port next puts them back as they were, and must not be overtaken."""
    begun, go_on = threading.Event(), threading.Event()
    configure = Lines.configure

    def slow(lines: Lines, settings: LineSettings) -> None:
        begun.set()
        go_on.wait(PATIENCE)
        configure(lines, settings)

    monkeypatch.setattr(Lines, "configure", slow)
    setting = asyncio.create_task(bench.port.aconfigure(LineSettings(9600), PATIENCE))
    await asyncio.to_thread(begun.wait, PATIENCE)
    setting.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not setting.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await setting
    assert bench.port.settings == LineSettings(9600)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", [("DTR", True), ("RTS", True)]),
        ("?dtr=0&rts=0", [("DTR", True), ("RTS", False), ("DTR", False)]),
        ("?dtr=1&rts=1", [("DTR", True), ("RTS", True), ("DTR", True)]),
    ],
)
def test_opening_never_holds_rts_asserted_while_dtr_is_not(
    options: str, expected: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is what pulls the reset of ESP boards."""
    seen: list[tuple[str, bool]] = []
    monkeypatch.setattr(serial.Serial, "_update_dtr_state", lambda port: seen.append(("DTR", port.dtr)))
    monkeypatch.setattr(serial.Serial, "_update_rts_state", lambda port: seen.append(("RTS", port.rts)))
    ours, theirs = os.openpty()
    open_port(parse_url(f"serial://{os.ttyname(theirs)}{options}"), PATIENCE).close()
    os.close(ours)
    os.close(theirs)
    assert seen == expected
