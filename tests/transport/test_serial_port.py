"""Serial ports beyond what every port promises: gathered writes, what becomes of them, and control of the line.

The other side of the line is the master of a pseudo-terminal, read and written by the test. Both writers are held to
the same, unless a test names one.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import tty
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import serial

from fastflight.errors import TransportClosed, TransportError, TransportTimeout
from fastflight.protocol.conversation import Conversation, Pause, Send
from fastflight.transport import (
    LineSettings,
    SerialControl,
    arun,
    parse_url,
    serial_aio,
    serial_port,
    serial_pump,
)
from fastflight.transport.pacing import Pacing, Writer
from fastflight.transport.port import Gathering
from fastflight.transport.serial import SerialAddress
from fastflight.transport.serial_port import SerialPort

PATIENCE = 20.0
# For waits that are to fail.
SHORT = 0.05
# No test lives to see this: what arrives was not sent because time was up.
NEVER_MS = 10**9

FULL = b"f" * 1_000_000
# More than a terminal that is full finds room for after all.
UNHEARD = b"u" * 60_000


@dataclass
class Bench:
    """A serial port and the other side of its line."""

    port: SerialPort
    address: SerialAddress
    far: int

    def get(self, count: int) -> bytes:
        """What arrives next."""
        data = b""
        while len(data) < count:
            data += os.read(self.far, count - len(data))
        return data

    def get_until(self, end: bytes) -> bytes:
        data = b""
        while not data.endswith(end):
            data += os.read(self.far, 65536)
        return data

    def give(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.far, data) :]


@pytest.fixture(params=["asyncio", "thread"])
def writer(request: pytest.FixtureRequest) -> Writer:
    return "thread" if request.param == "thread" else "asyncio"


@pytest.fixture
def opening(writer: Writer) -> Iterator[Callable[..., Bench]]:
    ports: list[SerialPort] = []
    descriptors: list[int] = []

    def open_port(drain: int = 1024, drain_ms: int = NEVER_MS, chunk: int = 4096) -> Bench:
        ours, theirs = os.openpty()
        tty.setraw(theirs)
        descriptors.extend((ours, theirs))
        parsed = parse_url(f"serial://{os.ttyname(theirs)}")
        assert isinstance(parsed, SerialAddress)
        address = replace(parsed, pacing=Pacing(drain, drain_ms, chunk, writer))
        ports.append(address.open(PATIENCE))
        return Bench(ports[-1], address, ours)

    yield open_port
    for port in ports:
        port.close()
    for descriptor in descriptors:
        os.close(descriptor)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("serial ")]


@pytest.fixture
def bench(opening: Callable[..., Bench]) -> Bench:
    return opening()


def alone(main: Coroutine[Any, Any, None]) -> None:
    """Run it, and see that it leaves no task behind."""

    async def watched() -> None:
        await main
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(watched())


# What is gathered, and when it goes.


def test_small_writes_wait_together(bench: Bench) -> None:
    """What can still be taken back was not sent."""

    async def main() -> None:
        for _ in range(10):
            await bench.port.awrite(b"gathered", PATIENCE)
        await bench.port.apurge(PATIENCE, unsent=True)
        await bench.port.awrite(b"sent", PATIENCE)
        await bench.port.adrain(PATIENCE)

    alone(main())
    assert bench.get(4) == b"sent"


def test_enough_of_them_go_at_once(opening: Callable[..., Bench]) -> None:
    bench = opening(drain=8)

    async def main() -> None:
        await bench.port.awrite(b"1234567", PATIENCE)
        await bench.port.awrite(b"8", PATIENCE)
        assert bench.get(8) == b"12345678"

    alone(main())


def test_they_go_when_time_is_up(opening: Callable[..., Bench]) -> None:
    bench = opening(drain_ms=1)

    async def main() -> None:
        await bench.port.awrite(b"late", PATIENCE)
        await bench.port.awrite(b"r", PATIENCE)
        assert await asyncio.to_thread(bench.get, 5) == b"later"

    alone(main())


def test_reading_sends_them_first(bench: Bench) -> None:
    """A board that waits for its frame answers only when it has it."""

    async def main() -> None:
        board = asyncio.create_task(asyncio.to_thread(lambda: bench.give(bench.get(5).upper())))
        await bench.port.awrite(b"fra", PATIENCE)
        await bench.port.awrite(b"me", PATIENCE)
        assert await bench.port.aread(PATIENCE) == b"FRAME"
        await board

    alone(main())


def test_nothing_is_gathered_while_somebody_waits_for_bytes(bench: Bench) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(bench.port.aread(PATIENCE))
        await asyncio.sleep(0)
        await bench.port.awrite(b"now", PATIENCE)
        assert await asyncio.to_thread(bench.get, 3) == b"now"
        bench.give(b"thanks")
        assert await waiting == b"thanks"

    alone(main())


def test_a_pause_of_a_conversation_is_silence_on_the_line(bench: Bench) -> None:
    def interrupt() -> Conversation[None]:
        yield Send(b"\x03")
        yield Pause(0)

    async def main() -> None:
        assert isinstance(bench.port, Gathering)
        await arun(interrupt(), bench.port)
        assert bench.get(1) == b"\x03"

    alone(main())


def test_a_thread_sends_what_a_loop_gathered_before_its_own(bench: Bench) -> None:
    asyncio.run(bench.port.awrite(b"loop, ", PATIENCE))
    bench.port.write(b"thread", PATIENCE)
    assert bench.get(12) == b"loop, thread"


def test_a_thread_that_reads_sends_what_a_loop_gathered(bench: Bench) -> None:
    asyncio.run(bench.port.awrite(b"question", PATIENCE))
    board = threading.Thread(target=lambda: bench.give(bench.get(8)[::-1]))
    board.start()
    assert bench.port.read(PATIENCE) == b"noitseuq"
    board.join()


def test_a_thread_and_a_timer_do_not_send_the_same_twice(opening: Callable[..., Bench]) -> None:
    """The loop runs on, and its time is up at about the moment at which the thread writes."""
    bench = opening(drain_ms=1)
    with running_loop() as call:
        for number in range(200):
            call(bench.port.awrite(b"%03d " % number, PATIENCE))
            bench.port.write(b"and ", PATIENCE)
    assert bench.get(200 * 8) == b"".join(b"%03d and " % number for number in range(200))


# How it ends.


@pytest.mark.parametrize("on_a_loop", [True, False])
def test_closing_sends_what_was_gathered(bench: Bench, on_a_loop: bool) -> None:
    async def main() -> None:
        await bench.port.awrite(b"last words", PATIENCE)
        if on_a_loop:
            await bench.port.aclose()

    alone(main())
    bench.port.close()
    assert bench.get(10) == b"last words"


@pytest.mark.parametrize("on_a_loop", [True, False])
def test_closing_says_what_could_not_be_sent(
    opening: Callable[..., Bench], on_a_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serial_port, "CLOSE_SECONDS", SHORT)
    bench = opening(drain=65536)

    async def main() -> None:
        fill(bench)
        await bench.port.awrite(UNHEARD, PATIENCE)
        if on_a_loop:
            with pytest.raises(TransportTimeout, match=r"took no byte for 0.05 s. Up to \d+ bytes were not sent"):
                await bench.port.aclose()

    alone(main())
    if not on_a_loop:
        with pytest.raises(TransportTimeout, match=r"took no byte for 0.05 s. Up to \d+ bytes were not sent"):
            bench.port.close()
    with pytest.raises(TransportClosed):
        bench.port.read(SHORT)


def test_what_was_reported_as_not_sent_is_not_sent_later(opening: Callable[..., Bench]) -> None:
    bench = opening(drain=65536)

    async def main() -> None:
        fill(bench)
        await bench.port.awrite(UNHEARD, PATIENCE)
        with pytest.raises(TransportTimeout, match=r"Up to \d+ bytes were not sent"):
            await bench.port.adrain(SHORT)
        reading = asyncio.create_task(asyncio.to_thread(bench.get_until, b"sent"))
        await bench.port.awrite(b"sent", PATIENCE)
        await bench.port.adrain(PATIENCE)
        arrived = re.fullmatch(b"f+(u*)sent", await reading)
        assert arrived is not None and len(arrived[1]) < len(UNHEARD)

    alone(main())


def test_a_cancelled_write_takes_back_its_own_bytes_only(bench: Bench) -> None:
    async def main() -> None:
        fill(bench)
        await bench.port.awrite(b"kept", PATIENCE)
        cancelled = asyncio.create_task(bench.port.awrite(b"c" * 100_000, PATIENCE))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        reading = asyncio.create_task(asyncio.to_thread(bench.get_until, b"end"))
        await bench.port.awrite(b"end", PATIENCE)
        await bench.port.adrain(PATIENCE)
        arrived = re.fullmatch(b"f+kept(c*)end", await reading)
        # A chunk that was under way is beyond recall.
        assert arrived is not None and len(arrived[1]) <= 4096

    alone(main())


def test_what_goes_wrong_behind_the_callers_back_is_told_to_the_next(opening: Callable[..., Bench]) -> None:
    bench = opening(drain_ms=0)

    async def main() -> None:
        await bench.port.awrite(b"fine", PATIENCE)
        hang_up(bench)
        with pytest.raises(TransportClosed, match="went away"):
            while True:
                await bench.port.awrite(b"lost", PATIENCE)
                await asyncio.sleep(0)
        for call in (bench.port.awrite(b"x", SHORT), bench.port.aread(SHORT), bench.port.adrain(SHORT)):
            with pytest.raises(TransportClosed, match="went away"):
                await call

    alone(main())


def test_purging_frees_a_write_that_waits(bench: Bench) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(bench.port.awrite(FULL, PATIENCE))
        assert await asyncio.to_thread(bench.get, 1) == b"f"
        await bench.port.apurge(PATIENCE, unsent=True)
        await waiting

    alone(main())


def test_closing_wakes_a_task_that_waits(bench: Bench) -> None:
    async def main() -> None:
        waiting = asyncio.create_task(bench.port.aread(PATIENCE))
        await asyncio.sleep(0)
        await bench.port.aclose()
        with pytest.raises(TransportClosed, match="closed on this side"):
            await waiting

    alone(main())


def test_a_port_closed_by_a_thread_leaves_nothing_on_the_loop(opening: Callable[..., Bench]) -> None:
    """The next port gets the same descriptor, and is heard on the same loop."""
    with running_loop() as call:
        for _ in range(3):
            bench = opening()
            bench.give(b"hello")
            assert call(bench.port.aread(PATIENCE)) == b"hello"
            bench.port.close()


def test_a_line_without_readers_fills_up_and_no_more(
    opening: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serial_pump, "MAX_RECEIVED_BYTES", 512)
    monkeypatch.setattr(serial_aio, "CALL_BYTES", 512)
    bench = opening()
    flood = threading.Thread(target=bench.give, args=(FULL,))

    async def main() -> None:
        flood.start()
        received = 0
        while received < len(FULL):
            piece = await bench.port.aread(PATIENCE)
            assert len(piece) <= 512 + 1 + 512
            received += len(piece)
        assert received == len(FULL)

    alone(main())
    flood.join()


# Control of the line.


def test_a_serial_port_is_a_serial_control(bench: Bench) -> None:
    assert isinstance(bench.port, SerialControl)
    assert bench.port.settings == LineSettings(115200, 8, "N", 1)
    assert bench.port.bytes_per_second == 11520


def test_a_new_speed_is_the_lines_speed(bench: Bench) -> None:
    bench.port.configure(LineSettings(9600), PATIENCE)
    assert bench.port.settings == LineSettings(9600)
    assert bench.port.bytes_per_second == 960
    asyncio.run(bench.port.aconfigure(LineSettings(921600, stop_bits=2), PATIENCE))
    assert bench.port.bytes_per_second == pytest.approx(921600 / 11)


def test_what_was_gathered_goes_before_the_line_changes(bench: Bench) -> None:
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
    ],
)
def test_settings_that_the_port_cannot_do_change_nothing(bench: Bench, settings: LineSettings, text: str) -> None:
    """A pseudo-terminal carries eight bits without parity."""
    with pytest.raises(TransportError, match=text):
        bench.port.configure(settings, PATIENCE)
    with pytest.raises(TransportError, match=text):
        asyncio.run(bench.port.aconfigure(settings, PATIENCE))
    assert bench.port.settings == LineSettings()


def test_a_port_without_control_lines_says_so(bench: Bench) -> None:
    with pytest.raises(TransportError, match="the port has no DTR to set"):
        bench.port.assign(PATIENCE, dtr=True)
    with pytest.raises(TransportError, match="the port has no RTS to set"):
        asyncio.run(bench.port.aassign(PATIENCE, dtr=False, rts=True))
    with pytest.raises(TransportError, match="the port has no modem lines"):
        bench.port.modem(PATIENCE)
    with pytest.raises(TransportError, match="the port has no modem lines"):
        asyncio.run(bench.port.amodem(PATIENCE))


def test_received_bytes_can_be_thrown_away(bench: Bench) -> None:
    def old_bytes() -> None:
        bench.give(b"old")
        while not (bench.port._received or bench.port._port.in_waiting):
            pass

    async def main() -> None:
        for word in (b"first", b"second"):
            bench.give(word)
            assert await bench.port.aread(PATIENCE) == word
            old_bytes()
            await bench.port.apurge(PATIENCE, received=True)

    alone(main())
    old_bytes()
    bench.port.purge(PATIENCE, received=True)
    bench.give(b"third")
    assert bench.port.read(PATIENCE) == b"third"


def test_a_closed_port_cannot_be_controlled(bench: Bench) -> None:
    bench.port.close()
    calls: list[Callable[[], object]] = [
        lambda: bench.port.configure(LineSettings(9600), SHORT),
        lambda: bench.port.assign(SHORT, dtr=True),
        lambda: bench.port.purge(SHORT, received=True, unsent=True),
        lambda: bench.port.modem(SHORT),
    ]
    for call in calls:
        with pytest.raises(TransportClosed, match="closed on this side"):
            call()
    acalls: list[Callable[[], Awaitable[object]]] = [
        lambda: bench.port.aconfigure(LineSettings(9600), SHORT),
        lambda: bench.port.aassign(SHORT, dtr=True),
        lambda: bench.port.apurge(SHORT, received=True, unsent=True),
        lambda: bench.port.amodem(SHORT),
    ]
    for acall in acalls:
        with pytest.raises(TransportClosed, match="closed on this side"):
            asyncio.run(awaited(acall))


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
    parse_url(f"serial://{os.ttyname(theirs)}{options}").open(PATIENCE).close()
    os.close(ours)
    os.close(theirs)
    assert seen == expected


def fill(bench: Bench) -> None:
    """Write until the line takes no more. A terminal makes room in its own time: until an attempt takes none."""
    taken = -1
    while bench.port._outbox.taken != taken:
        taken = bench.port._outbox.taken
        with pytest.raises(TransportTimeout):
            bench.port.write(FULL, SHORT)


def hang_up(bench: Bench) -> None:
    """Close the other side; its number stays taken, for the fixture to close."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, bench.far)
    os.close(null)


async def awaited(call: Callable[[], Awaitable[object]]) -> object:
    return await call()


class running_loop:
    """A loop that runs in a thread of its own. Enter it to get a function that runs a coroutine there."""

    def __enter__(self) -> Callable[[Coroutine[Any, Any, Any]], Any]:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        return lambda main: asyncio.run_coroutine_threadsafe(main, self._loop).result(PATIENCE)

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
